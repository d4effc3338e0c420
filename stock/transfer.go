package stock

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// stopped is after how long Expired finishes a transfer that whoever began it has not.
const stopped = 10 * time.Second

// move takes up to most units from one segment's counter and gives them to another's, and returns how many. It takes
// three steps with an id; after the first one anybody can finish it.
func (c *Counter) move(ctx context.Context, item string, from, to int, most int64) (int64, error) {
	id := newOrderID()
	a, err := c.run(ctx, c.scripts.moveTake,
		[]string{c.keys.item(from, item), c.keys.control(from, item), c.keys.transfer(from, id), c.keys.transfers(from)},
		id, most, item, to)
	if err != nil {
		return 0, reading(err) // if units were taken they are on their way, and whoever waits for them finishes it
	}
	if a.code() != 1 {
		return 0, nil
	}
	units, err := a.number(1)
	if err != nil {
		return 0, err
	}
	// From here on a client that has gone must not leave the units on the way.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	if err := c.finish(ctx, id, item, from, to, a.text(1), a.text(3)); err != nil {
		return 0, reading(err)
	}
	return units, nil
}

// finish gives the units of a transfer and closes it. A counter that has gone leaves it open.
func (c *Counter) finish(ctx context.Context, id, item string, from, to int, units, until string) error {
	a, err := c.run(ctx, c.scripts.moveGive,
		[]string{c.keys.item(to, item), c.keys.control(to, item), c.keys.transfer(to, id)}, units, until)
	if err != nil {
		return err
	}
	if a.code() != 1 {
		return fail(ErrNotWarmed, "a segment is missing")
	}
	_, err = c.run(ctx, c.scripts.moveDone,
		[]string{c.keys.control(from, item), c.keys.transfer(from, id), c.keys.transfers(from)}, id)
	return err
}

// finishTransfers finishes the transfers out of a partition that have been open for that long. One that cannot be read, or whose
// counter cannot, is passed over, so that it does not stop the others; the first such fault is returned at the end.
func (c *Counter) finishTransfers(ctx context.Context, part int, openFor time.Duration) error {
	a, err := c.run(ctx, c.scripts.expired, []string{c.keys.transfers(part)}, 100, openFor.Milliseconds(), 0)
	if err != nil {
		return reading(err)
	}
	var passed error
	for i := 1; i < len(a); i++ {
		if err := c.finishTransfer(ctx, part, a.text(i)); isCorrupt(err) {
			passed = cmp.Or(passed, err)
		} else if err != nil {
			return err
		}
	}
	return passed
}

func (c *Counter) finishTransfer(ctx context.Context, part int, id string) error {
	move, err := c.run(ctx, c.scripts.moveRead, []string{c.keys.transfer(part, id)})
	if err != nil {
		return reading(err)
	}
	if move.code() != 0 {
		return nil // forgotten: its units are lost to the counters, and a comparison with SQL shows them
	}
	to, err := move.number(2)
	if err != nil {
		return err
	}
	err = c.finish(ctx, id, move.text(1), part, int(to), move.text(3), move.text(4))
	if e, ok := as(err); ok && errors.Is(e.sentinel, ErrNotWarmed) {
		return nil // stays open; its units count as moving, and the counter is to be restored
	}
	return err
}
