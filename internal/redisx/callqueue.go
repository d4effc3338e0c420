package redisx

// callQueue is a list of the calls that wait, first come first served.
type callQueue struct {
	first, last *call
}

func (q *callQueue) push(c *call) {
	c.queued = true
	c.prev = q.last
	if q.last != nil {
		q.last.next = c
	} else {
		q.first = c
	}
	q.last = c
}

func (q *callQueue) remove(c *call) {
	c.queued = false
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		q.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		q.last = c.prev
	}
	c.prev, c.next = nil, nil
}

// cut takes out the first call and, linked to it, as many of those behind it as go with it in one batch.
func (q *callQueue) cut() (lead *call) {
	lead = q.first
	if lead == nil {
		return nil
	}
	last, bytes := lead, 0
	lead.queued = false
	for n := 1; n < maxBatch; n++ {
		c := last.next
		if c == nil || c.node != lead.node || bytes+c.bytes > maxBytes {
			break
		}
		bytes += c.bytes
		c.queued = false
		last = c
	}
	q.first, last.next = last.next, nil
	if q.first != nil {
		q.first.prev = nil
	} else {
		q.last = nil
	}
	return lead
}
