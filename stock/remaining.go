package stock

import "context"

// Remaining returns how many units the item's counter has. It is for people to look at: between this answer and a
// deduct others may have bought, and only Deduct decides. It reads one key and locks nothing. Its errors: ErrNotWarmed,
// ErrInvalid, ErrUnavailable; as it changes nothing, a lost reply is ErrUnavailable too.
func (c *Counter) Remaining(ctx context.Context, item ID) (int64, error) {
	var text string
	if err := checkID("the item", item, &text, true); err != nil {
		return 0, err
	}
	a, err := c.run(ctx, c.scripts.remaining, []string{c.keys.counter(text)})
	if err != nil {
		return 0, reading(err)
	}
	if a.code() == codeNotWarmed {
		return 0, fail(ErrNotWarmed, "")
	}
	return a.int(1), nil
}

// reading turns an unknown outcome into unavailable: a call that changes nothing has no outcome.
func reading(err error) error {
	if e, ok := as(err); ok && e.sentinel == ErrUnknownOutcome {
		return &Error{sentinel: ErrUnavailable, cause: e.cause}
	}
	return err
}
