package lock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/redisx"
)

// A script works on one slot. On a cluster the keys of a lease may lie in several: they are then taken group by group,
// in one order for everybody, and given the same number.

const detectTimeout = 2 * time.Second

// detect asks the server whether it is part of a cluster, and reports whether that is known now.
func (b *redisBackend) detect(ctx context.Context) bool {
	if b.mode.Load() != modeUnknown {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, detectTimeout)
	defer cancel()
	cluster, err := b.rdb.IsCluster(ctx)
	switch {
	case err != nil:
		return false
	case cluster:
		b.mode.Store(modeCluster)
	default:
		b.mode.Store(modeSingle)
	}
	return true
}

// cluster reports whether the server is part of a cluster. Until it has said so the client's type decides: a release
// must not wait for a question.
func (b *redisBackend) cluster() bool {
	if mode := b.mode.Load(); mode != modeUnknown {
		return mode == modeCluster
	}
	return b.rdb.IsClusterClient()
}

// publish returns the command that tells of a release: on a cluster one that stays within the shard.
func (b *redisBackend) publish() any {
	if b.cluster() {
		return "SPUBLISH"
	}
	return "PUBLISH"
}

// message is what a release publishes: who it was, so that our own watch does not wake us. The release of an orphan
// wakes us too.
func (b *redisBackend) message(orphan bool) any {
	if orphan {
		return ""
	}
	return b.sender
}

// groups splits keys into those of one slot each, ordered by slot and key.
func (b *redisBackend) groups(keys []string) [][]string {
	if len(keys) == 1 || !b.cluster() {
		return [][]string{keys}
	}
	sorted := slices.SortedFunc(slices.Values(keys), func(x, y string) int {
		return cmp.Or(cmp.Compare(redisx.Slot(x), redisx.Slot(y)), cmp.Compare(x, y))
	})
	var groups [][]string
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && redisx.Slot(sorted[n]) == redisx.Slot(sorted[0]) {
			n++
		}
		groups = append(groups, sorted[:n:n])
		sorted = sorted[n:]
	}
	return groups
}

// acquireGroups takes the groups one after the other and then brings them to one number. A group that is taken ends it:
// what is held by then is released in reverse order, so that nothing is held while its caller waits. A repeat releases
// all: an earlier send may have got further, or has lost one of its keys since. A group without an answer leaves the
// others as they are: the caller repeats, or releases all.
func (b *redisBackend) acquireGroups(ctx context.Context, r Request, groups [][]string) (Grant, error) {
	numbers := make([]int64, len(groups))
	floor := int64(0)
	for i, keys := range groups {
		g, err := b.acquire(ctx, group(r, keys), floor)
		if err != nil {
			return Grant{}, inPart(i > 0, err)
		}
		if !g.Held {
			g.Taken = slices.Index(r.Keys, keys[g.Taken])
			if !r.Repeat {
				groups = groups[:i]
			}
			return g, b.giveBack(ctx, r, groups)
		}
		numbers[i] = g.Fence
		floor = max(floor, g.Fence)
	}
	for {
		if !slices.ContainsFunc(numbers, func(n int64) bool { return n < floor }) {
			return Grant{Held: true, Fence: floor}, nil
		}
		if err := b.raise(ctx, r, groups, numbers, floor); err != nil {
			return Grant{}, err
		}
		floor = slices.Max(numbers)
	}
}

// raise repeats, side by side, the acquire of each group whose number is below floor.
func (b *redisBackend) raise(ctx context.Context, r Request, groups [][]string, numbers []int64, floor int64) error {
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, keys := range groups {
		if numbers[i] >= floor {
			continue
		}
		wg.Go(func() {
			g, err := b.acquire(ctx, group(r, keys), floor)
			if err == nil && !g.Held {
				// Taken between two of our own steps: the TTL has run out meanwhile, or somebody deleted the key.
				err = &Error{sentinel: ErrUnknownOutcome, detail: "a key was lost while the others were taken"}
			}
			numbers[i], errs[i] = g.Fence, err
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return inPart(true, err)
		}
	}
	return nil
}

// inPart turns "nothing was done" into "unknown" where other groups were taken before: something is to be cleaned up.
func inPart(some bool, err error) error {
	var e *Error
	if some && errors.As(err, &e) && e.sentinel == ErrUnavailable {
		return &Error{sentinel: ErrUnknownOutcome, cause: e.cause}
	}
	return err
}

// giveBack releases groups in reverse order. What stays behind for want of an answer is the caller's to clean up, by
// the error.
func (b *redisBackend) giveBack(ctx context.Context, r Request, groups [][]string) error {
	ctx = context.WithoutCancel(ctx)
	for _, keys := range slices.Backward(groups) {
		if _, _, err := b.release(ctx, Held{Token: r.Token, Repeat: r.Repeat}, keys); err != nil {
			return inPart(true, err)
		}
	}
	return nil
}

func group(r Request, keys []string) Request {
	r.Keys = keys
	return r
}

// eachGroup runs step for each slot of the lease, side by side, so that a node that hangs delays no other. The state is
// the worst of those that answered; the error says that nothing was done only if it was in none of them.
func (b *redisBackend) eachGroup(ctx context.Context, keys []string, step func(context.Context, []string) (State, error)) (State, error) {
	groups := b.groups(keys)
	if len(groups) == 1 {
		return step(ctx, keys)
	}
	states, errs := make([]State, len(groups)), make([]error, len(groups))
	var wg sync.WaitGroup
	for i, keys := range groups {
		wg.Go(func() { states[i], errs[i] = step(ctx, keys) })
	}
	wg.Wait()
	var failed error
	answered := false
	for _, err := range errs {
		switch {
		case err == nil:
			answered = true
		case failed == nil || !errors.Is(err, ErrUnavailable):
			failed = err
		}
	}
	return slices.Max(states), inPart(answered, failed) // Ours, the least, where there was no answer
}
