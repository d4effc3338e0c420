package dedup

import "context"

// Do runs fn unless the request has been done, and returns what fn returned, now or then (replayed). What fn returns
// with a nil error is stored. After an error or a panic the request may run again at once, as the next attempt; those who
// have waited for it in this process get that error, after a panic ErrUnavailable. The context of fn is that of
// [Claim.Context]. The result is shared with those who wait and must not be changed.
//
// The errors are those of fn and of [Dedup.Begin], and ErrLeaseLost with the result when fn came to its end after
// another had taken over: the result is then not the one that a repeat gets. A result that could not be stored within a
// second is returned without an error, since the work is done; the store is tried on in the background, and log and
// metric say persist_failed.
func (d *Dedup) Do(ctx context.Context, req Request, fn func(ctx context.Context) ([]byte, error)) (res []byte, replayed bool, err error) {
	claim, rec, err := d.Begin(ctx, req)
	switch {
	case err != nil:
		return nil, false, err
	case rec != nil:
		return rec.Data, true, nil
	}
	returned := false
	defer func() {
		if !returned { // a panic, which goes on, or runtime.Goexit
			_ = claim.Fail(ctx, nil, &Error{Err: ErrUnavailable, Reason: "the work panicked"})
		}
	}()
	res, err = fn(claim.Context(ctx))
	returned = true

	said := claim.Decision()
	switch {
	case err != nil && ctx.Err() != nil:
		_ = claim.Fail(ctx, nil, nil) // its own caller left: the next of those who wait begins
	case err != nil:
		_ = claim.Fail(ctx, nil, err)
	case said.NoStore && !said.Commit:
		_ = claim.Fail(ctx, &Result{Data: res}, nil)
	default:
		if stored := claim.Complete(ctx, Result{Data: res}, said.PinTTL); stored != nil && !unsettled(stored) {
			err = stored
		}
		return res, false, err
	}
	return res, false, err
}
