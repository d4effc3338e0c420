package stock

import "context"

// Pause stops the item's sale: once it has returned nil, no deduct succeeds until Resume; they hear ErrPaused. Orders that
// were taken are confirmed and released as ever. It lasts until Resume also if the item is frozen, before or after, and
// thawed. It may be called twice. Its errors: ErrNotWarmed, ErrInvalid, ErrUnavailable, ErrUnknownOutcome.
func (c *Counter) Pause(ctx context.Context, item ID) error {
	_, err := c.toggle(ctx, item, "pause", "", "", nil)
	return err
}

// Resume opens a paused sale again. It may be called twice. A frozen item, one of which SQL had less than Redis promised,
// stays closed, and paused if it was, and the error is ErrPaused: only Thaw opens it. The other errors are those of Pause.
func (c *Counter) Resume(ctx context.Context, item ID) error {
	_, err := c.toggle(ctx, item, "resume", "", "", nil)
	return err
}

// Thaw opens an item that was frozen because SQL refused units that Redis had sold. Those units are booked as withdrawn, as
// SQL never had them, and it returns how many they were. An item that is paused as well stays so until Resume. operation names
// this step: a repeat of it changes nothing and returns the same. operator, who decided it, is kept beside it. Call it once
// Redis and SQL have been compared. Its errors: ErrNotWarmed, ErrMismatch if the operation id was used for something else,
// ErrStale if the item is not [AsSeen], ErrInvalid, ErrUnavailable, ErrUnknownOutcome.
func (c *Counter) Thaw(ctx context.Context, item ID, operation, operator string, opts ...StepOption) (int64, error) {
	if err := checkOperation(operation, operator); err != nil {
		return 0, err
	}
	return c.toggle(ctx, item, "thaw", operation, operator, opts)
}

func (c *Counter) toggle(ctx context.Context, item ID, action, operation, operator string, opts []StepOption) (int64, error) {
	var text string
	if err := checkID("the item", item, &text, true); err != nil {
		return 0, err
	}
	s, err := newStep(text, opts)
	if err != nil {
		return 0, err
	}
	units := int64(0)
	err = c.everySegment(ctx, text, func(part int, _ place) error {
		a, err := c.run(ctx, c.scripts.toggle, []string{c.keys.control(part, text)}, action, operation, operator, s.sale(part))
		if err != nil {
			return err
		}
		switch a.code() {
		case 1:
			n, err := a.number(2)
			units += n
			return err
		case 0:
			return fail(ErrPaused, "frozen until reconciled: see Thaw")
		case codeNotWarmed:
			return fail(ErrNotWarmed, "")
		case codeMismatch:
			return mismatched(a)
		}
		return corrupt("answer of a script")
	})
	if err == nil {
		c.tel.decided(ctx, action, text, operation, operator, units)
	}
	return units, err
}

func checkOperation(operation, operator string) error {
	var text string
	if err := checkID("the operation id", operation, &text, true); err != nil {
		return err
	}
	if err := checkID("the operator", operator, &text, true); err != nil {
		return err
	}
	return nil
}
