package faultproxy

import (
	"errors"
)

// command passes one command on, or does to it what its rule says.
func (l *link) command(raw []byte, cmd *Command) error {
	cmd.Conn = l.id
	if cmd.raw == nil {
		cmd.raw = raw
	}
	rule, delay := l.proxy.see(*cmd)
	if err := l.pause(delay); err != nil {
		return err
	}
	answer := &exchange{answers: cmd.answers, pubsub: cmd.pubsub}
	if rule != nil {
		a := rule.action
		switch a.kind {
		case loseRequest:
			rule.fire()
			return errGone
		case hangRequest:
			rule.fire()
			l.swallow()
			return errGone
		case cutRequest:
			err := l.pass(ToServer, raw[:min(a.bytes, len(raw))])
			rule.fire()
			return errors.Join(err, errGone)
		case delayRequest:
			rule.fire()
			if err := l.pause(a.delay); err != nil {
				return err
			}
		case holdRequest:
			rule.fire()
			select {
			case <-rule.released:
			case <-l.gone:
				return errGone
			}
		case repeat:
			first := &exchange{answers: cmd.answers, pubsub: cmd.pubsub, rule: rule, done: make(chan struct{})}
			l.expect(first)
			if err := l.pass(ToServer, raw); err != nil {
				return err
			}
			select {
			case <-first.done:
			case <-l.gone:
				return errGone
			}
		default:
			answer.rule = rule
		}
	}
	l.expect(answer)
	return l.pass(ToServer, raw)
}

// replied does to a complete reply what its rule says.
func (l *link) replied(e *exchange) error {
	a := e.rule.action
	switch a.kind {
	case repeat:
		e.rule.fire()
		close(e.done)
		return nil
	case loseReply:
		l.deafen()
		e.rule.fire() // before the client notices, so that its test finds it fired
		return closeWrite(l.client)
	case hangReply:
		l.deafen()
		e.rule.fire()
		return nil
	case cutReply:
		err := l.pass(ToClient, e.held[:min(a.bytes, len(e.held))])
		l.deafen()
		e.rule.fire()
		return errors.Join(err, closeWrite(l.client))
	case delayReply:
		e.rule.fire()
		if err := l.pause(a.delay); err != nil {
			return err
		}
	case holdReply:
		e.rule.fire()
		select {
		case <-e.rule.released:
		case <-l.gone:
			return errGone
		}
	}
	return l.pass(ToClient, e.held)
}
