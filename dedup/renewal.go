package dedup

import (
	"context"
	"errors"
	"time"
)

// renewable is a claim as the scheduler sees it.
type renewable Claim

// Due implements renew.Task.
func (r *renewable) Due(now time.Time) time.Time { return (*Claim)(r).due(now) }

// due is called by the scheduler when the claim wants its next renewal, or has run for too long.
func (c *Claim) due(now time.Time) (next time.Time) {
	cfg := c.d.cfg
	limit := c.started.Add(cfg.maxRun)
	if !now.Before(limit) {
		c.lose(maxHold) // and no more renewals: the record lapses if the work does not end
		return time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.lost != nil {
		return time.Time{}
	}
	if c.bypassed {
		return limit
	}
	if !c.renewing {
		c.renewing = true
		c.d.work.hold()
		go c.renew(now)
	}
	if next = now.Add(cfg.lease / 3); next.After(limit) {
		return limit
	}
	return next
}

func (c *Claim) renew(sent time.Time) {
	d := c.d
	defer d.work.leave()
	err := d.once(d.work.ctx, func(ctx context.Context) error { return d.store.Renew(ctx, c.owner, d.cfg.lease) })
	if errors.Is(err, ErrLeaseLost) {
		c.lose(taken)
	}
	c.mu.Lock()
	c.renewing = false
	over := c.over
	if err == nil {
		c.leaseEnd = sent.Add(d.cfg.lease)
	} else if !over && c.lost == nil {
		d.renewal.Reset(&c.renewal, time.Now().Add(d.cfg.lease/15))
	}
	c.mu.Unlock()
	if err != nil && !over {
		d.tel.renewFailed(d.work.ctx, c, err)
	}
}
