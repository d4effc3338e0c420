// Package faultproxy stands between a client and a real server and breaks the
// connection at a chosen command. It is imported by tests only.
//
//	p := faultproxy.Redis(t, srv.Addr()) // also Postgres, MariaDB, TCP
//	rdb := srv.Client(t, func(o *redis.Options) { o.Addr = p.Addr() })
//
//	rule := p.On(faultproxy.Named("EVALSHA").Containing(key), faultproxy.LoseReply())
//	... // the client sees a closed connection; the server has executed the script
//	rule.Wait(t)
//
// # Faults of one command
//
// A Match chooses commands: Named or Any, Containing, Nth, Times, Always. An Action
// says what happens:
//
//	                 server executes   client sees
//	LoseRequest      no                closed connection
//	HangRequest      no                silence
//	CutRequest(n)    no                closed connection, n bytes arrived
//	DelayRequest(d)  d later           a slow reply
//	HoldRequest      after Release     silence until Release; the command arrives even
//	                                   if the client has given up meanwhile
//	Repeat           twice             the second reply
//	LoseReply        yes               closed connection
//	HangReply        yes               silence
//	CutReply(n)      yes               n bytes of the reply, closed connection
//	DelayReply(d)    yes               a slow reply
//	HoldReply        yes               silence until Release
//
// A closed connection makes go-redis send the command again, three times by
// default; the second attempt is a command of its own, which the rule meets only
// with Times or Always.
//
// # Faults of the network
//
//	p.Refuse(); p.HalfOpen(); p.Stall(); p.CutAll(); p.CutAfter(faultproxy.ToClient, n)
//	p.Delay(d); p.Redirect(otherServer)
//	p.Heal(t) // ends all of them, and all rules
//
// # What was sent
//
//	p.Count(faultproxy.Named("EVALSHA").Containing(key))
//	p.Commands() // in order, for messages and comparisons
//
// Clients that learn addresses from the servers, as in a cluster, go through
// proxies with the dial function that Dialer returns.
//
// Not understood are CLIENT REPLY, encryption and compression.
package faultproxy
