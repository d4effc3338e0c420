package stock

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// mostTransfers bounds how many open transfers of one partition a survey looks at.
const mostTransfers = 1000

// onTheWay returns how many of an item's units are in transfers that have stopped: they were taken off one segment and not yet
// given to another, and whoever took them has not gone on for as long as openFor, which is longer than the survey. These units
// stay where they are, and reach a counter when the transfer is finished. A transfer that was given and only not closed has
// none, and neither has one that is forgotten: nobody finishes it. still is false while a younger one is under way.
func (c *Counter) onTheWay(ctx context.Context, it *SurveyedItem, openFor time.Duration) (units int64, still bool, err error) {
	for part, sw := range it.switches {
		if sw.moving == 0 {
			continue
		}
		open, stopped, err := c.openTransfers(ctx, part, openFor)
		if err != nil {
			return 0, false, err
		}
		if len(open) == mostTransfers {
			return 0, false, nil
		}
		for _, id := range open {
			n, mine, err := c.taken(ctx, part, id, it)
			if err != nil {
				return 0, false, err
			}
			if mine && !slices.Contains(stopped, id) {
				return 0, false, nil
			}
			units += n
		}
	}
	return units, true, nil
}

// openTransfers lists the open transfers out of a partition, and those of them that have been open for that long. A list that
// cannot be read has none: Expired cannot finish them either.
func (c *Counter) openTransfers(ctx context.Context, part int, openFor time.Duration) (open, stopped []string, err error) {
	key := c.keys.transfers(part)
	open, err = c.rdb.ZRange(ctx, key, 0, mostTransfers-1).Result()
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, &Error{sentinel: ErrUnavailable, cause: err}
	}
	a, err := c.run(ctx, c.scripts.expired, []string{key}, mostTransfers, openFor.Milliseconds(), 0)
	if err != nil && !isCorrupt(err) {
		return nil, nil, reading(err)
	}
	for i := 1; i < len(a); i++ {
		stopped = append(stopped, a.text(i))
	}
	return open, stopped, nil
}

// taken returns how many units a transfer has taken and not given, and whether it is one of the item. Units of an earlier sale
// are never given: see move_give.lua.
func (c *Counter) taken(ctx context.Context, part int, id string, it *SurveyedItem) (units int64, mine bool, err error) {
	move, err := c.run(ctx, c.scripts.moveRead, []string{c.keys.transfer(part, id)})
	if isCorrupt(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, reading(err)
	}
	if move.code() != 0 || move.text(1) != it.Item || move.text(5) != "taken" {
		return 0, false, nil
	}
	to, err := move.number(2)
	if err != nil {
		return 0, false, err
	}
	until, err := move.number(4)
	if err != nil {
		return 0, false, err
	}
	if anew := it.switches[int(to)].anew; anew > 0 && until <= anew+24*time.Hour.Milliseconds() {
		return 0, true, nil
	}
	given, err := c.rdb.Exists(ctx, c.keys.transfer(int(to), id)).Result()
	if err != nil {
		return 0, false, &Error{sentinel: ErrUnavailable, cause: err}
	}
	if given > 0 {
		return 0, true, nil
	}
	units, err = move.number(3)
	return units, true, err
}
