package lock

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// proxied returns a Locker whose commands go through a proxy, a plain client beside it, and the prefix of the keys.
func proxied(t *testing.T, opts ...Option) (l *Locker, p *faultproxy.Proxy, direct *redis.Client, prefix string) {
	t.Helper()
	srv := testserver.Redis(t)
	p = faultproxy.Redis(t, srv.Addr())
	rdb := srv.Client(t, func(o *redis.Options) {
		o.Addr = p.Addr()
		o.ReadTimeout = 300 * time.Millisecond
	})
	prefix = srv.Prefix(t)
	l = over(t, rdb, append([]Option{Prefix(prefix)}, opts...)...)
	return l, p, srv.Client(t), prefix
}

func script(src string) faultproxy.Match { return faultproxy.Named("EVALSHA").Containing(shaOf(src)) }

func gone(t *testing.T, rdb redis.UniversalClient, key string) {
	t.Helper()
	testserver.Eventually(t, soon, func() bool { return rdb.Exists(context.Background(), key).Val() == 0 }, key+" is gone")
}

// (1), redis/go-redis#2985: the reply to an acquire is lost. The client's own resending, switched off for us, would be
// told that somebody else has the lock, and nobody would hold it for a whole TTL. We are told that it is ours: held
// once, with the number of the first send, and nothing is left afterwards.
func TestGoRedis2985_LostReplyStillOurs(t *testing.T) {
	for name, fault := range map[string]faultproxy.Action{"closed connection": faultproxy.LoseReply(), "silence": faultproxy.HangReply(), "half a reply": faultproxy.CutReply(5)} {
		for budget, wait := range map[string]time.Duration{"waiting": 5 * time.Second, "one attempt": 0} {
			t.Run(name+", "+budget, func(t *testing.T) {
				l, p, rdb, prefix := proxied(t)
				rule := p.On(script(acquireLua), fault)
				lease := must(t, l, keys("a"), Wait(wait))
				rule.Wait(t)
				if n := p.Count(script(acquireLua)); n != 2 {
					t.Errorf("sent %d times, want twice", n)
				}
				if got := rdb.Get(t.Context(), fenceKey(prefix+"lock:a")).Val(); got != strconv.FormatInt(lease.Fence(), 10) {
					t.Errorf("fence %d, in Redis %s", lease.Fence(), got)
				}
				if got := rdb.Get(t.Context(), prefix+"lock:a").Val(); got != lease.h.held.Token {
					t.Errorf("Redis has the token %s", got)
				}
				free(t, lease)
				gone(t, rdb, prefix+"lock:a")
			})
		}
	}
}

// (2): the acquire is executed and its caller has gone. The key is gone within the clean-up time, not after the TTL; also
// when the server was stopped with the command in its socket buffer, and executes it after the first delete.
func TestCallerThatLeftLeavesNoKey(t *testing.T) {
	l, p, rdb, prefix := proxied(t, TTL(time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	rule := p.On(script(acquireLua), faultproxy.HangReply())
	done := make(chan error)
	go func() {
		_, err := l.Acquire(ctx, keys("a"))
		done <- err
	}()
	rule.Wait(t)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want the context's", err)
	}
	gone(t, rdb, prefix+"lock:a")
}

func TestServerThatIsStoppedWithTheAcquireInItsBuffer(t *testing.T) {
	srv := testserver.NewRedis(t)
	rdb := srv.Client(t, func(o *redis.Options) { o.ReadTimeout = 100 * time.Millisecond })
	l := over(t, rdb, TTL(5*time.Minute))
	free(t, must(t, l, keys("warm")))
	srv.Pause(t)
	if _, err := l.Acquire(t.Context(), keys("a"), Wait(time.Second)); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("err = %v, want ErrUnknownOutcome", err)
	}
	srv.Resume(t)
	admin := srv.Client(t)
	testserver.Eventually(t, soon, func() bool { return admin.Exists(t.Context(), fenceKey("lock:a")).Val() == 1 }, "the server has executed the acquire")
	gone(t, admin, "lock:a")
	testserver.Eventually(t, soon, func() bool { return l.renewals.Len() == 0 }, "nothing is left to clean up")
	gone(t, admin, "lock:a")
}

// (4), etcd-io/etcd#22082: the reply to the release is lost, somebody else acquires, the release is repeated: the other's
// lock is untouched, and the release is nil, since the lock was held until it.
func TestLostReplyToAReleaseLeavesTheNextHolderAlone(t *testing.T) {
	l, p, rdb, prefix := proxied(t)
	lease := must(t, l, keys("a"))
	first := p.On(script(releaseLua), faultproxy.LoseReply())
	again := p.On(script(releaseLua).Nth(2), faultproxy.HoldRequest())
	done := make(chan error)
	go func() { done <- lease.Release(t.Context()) }()
	first.Wait(t)
	again.Wait(t)
	other := over(t, rdb, Prefix(prefix))
	theirs := must(t, other, keys("a"))
	again.Release()
	if err := <-done; err != nil {
		t.Errorf("release: %v, want nil", err)
	}
	if got := rdb.Get(t.Context(), prefix+"lock:a").Val(); got != theirs.h.held.Token || theirs.Err() != nil {
		t.Errorf("the next holder's lock is gone: %q, %v", got, theirs.Err())
	}
	free(t, theirs)
}

// A command that the server executes twice, by whatever network, has the effect of one.
func TestCommandsThatArriveTwice(t *testing.T) {
	l, p, rdb, prefix := proxied(t)
	for _, src := range []string{acquireLua, handoverLua, releaseLua} {
		p.On(script(src).Always(), faultproxy.Repeat())
	}
	var wg sync.WaitGroup
	last, inside := int64(0), 0
	for range 20 {
		wg.Go(func() {
			lease := must(t, l, keys("a"))
			if inside++; inside != 1 || lease.Fence() <= last {
				t.Errorf("%d inside, fence %d after %d", inside, lease.Fence(), last)
			}
			last = lease.Fence()
			inside--
			if err := lease.Release(t.Context()); err != nil && !errors.Is(err, ErrLost) { // the second reply says "missing"
				t.Error(err)
			}
		})
	}
	wg.Wait()
	gone(t, rdb, prefix+"lock:a")
}

// (7), D36: a renewal without an answer is survived, and so are two in a row, without a signal to the work.
func TestDroppedRenewalsAreSurvived(t *testing.T) {
	for name, fault := range map[string]faultproxy.Action{"request lost": faultproxy.LoseRequest(), "request hangs": faultproxy.HangRequest(), "reply lost": faultproxy.LoseReply()} {
		for _, n := range []int{1, 2} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l, p, _, _ := proxied(t, TTL(3*time.Second))
				lease := must(t, l, keys("a"))
				ctx := lease.Context(t.Context())
				rule := p.On(script(renewLua).Times(n), fault)
				rule.Wait(t)
				testserver.Eventually(t, soon, func() bool { return renewalsOf(lease) >= 2 }, "two renewals are confirmed after the fault")
				if rule.Fired() != n || ctx.Err() != nil || lease.Err() != nil {
					t.Errorf("after %d of %d faults: %v, %v", rule.Fired(), n, lease.Err(), context.Cause(ctx))
				}
				free(t, lease)
			})
		}
	}
}

func renewalsOf(x *Lease) int {
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	return x.h.renewals
}

// F006, (6): when all renewals are dropped for longer than the TTL, the work is told before a rival can enter.
func TestSilentServerEndsTheLeaseBeforeARivalEnters(t *testing.T) {
	l, p, rdb, prefix := proxied(t, TTL(2*time.Second))
	rival := over(t, rdb, Prefix(prefix))
	lease := must(t, l, keys("a"))
	ctx := lease.Context(t.Context())
	p.On(script(renewLua).Always(), faultproxy.HangRequest())
	entered := make(chan time.Time)
	go func() {
		theirs := must(t, rival, keys("a"))
		entered <- time.Now()
		free(t, theirs)
	}()
	<-ctx.Done()
	told := time.Now()
	lostBecause(t, context.Cause(ctx), Unconfirmed)
	if in := <-entered; !told.Before(in) {
		t.Errorf("a rival entered %v before the work was told", told.Sub(in))
	}
	lostBecause(t, lease.Release(t.Context()), Unconfirmed)
}

// F008, B06: expired, held by another, and Redis unreachable are three different errors.
func TestExpiredTakenAndUnreachableAreThreeErrors(t *testing.T) {
	l, p, rdb, prefix := proxied(t)
	lease := must(t, l, keys("a"))
	check(t, rdb.Del(t.Context(), prefix+"lock:a").Err())
	lostBecause(t, lease.Release(t.Context()), Gone)
	lease = must(t, l, keys("a"))
	check(t, rdb.Set(t.Context(), prefix+"lock:a", "another", time.Minute).Err())
	lostBecause(t, lease.Release(t.Context()), Taken)
	_, err := l.Acquire(t.Context(), keys("a"), Wait(0))
	busyBecause(t, err, NoWait)

	p.Refuse()
	p.CutAll()
	if _, err := l.Acquire(t.Context(), keys("a")); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrBusy) {
		t.Errorf("unreachable: %v, want ErrUnavailable", err)
	}
	p.Heal(t)
}

// F013: what a server says that cannot execute anything is ErrUnavailable, never ErrBusy: after a failover a client may
// still talk to a replica.
func TestServersThatDecline(t *testing.T) {
	for _, text := range []string{
		"READONLY You can't write against a read only replica.",
		"LOADING Redis is loading the dataset in memory",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"CLUSTERDOWN The cluster is down",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"NOAUTH Authentication required.",
		"NOPERM this user has no permissions to run the 'evalsha' command",
	} {
		srv := testserver.Redis(t)
		rdb := srv.Client(t)
		l := over(t, rdb, Prefix(srv.Prefix(t)))
		rdb.AddHook(answering{text})
		_, err := l.Acquire(t.Context(), keys("a"))
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrBusy) {
			t.Errorf("%.20q: %v, want ErrUnavailable", text, err)
		}
	}
	srv := testserver.NewSentinel(t)
	replica := srv.Replica(t).Client(t)
	l := over(t, replica)
	if _, err := l.Acquire(t.Context(), keys("a")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a replica: %v, want ErrUnavailable", err)
	}
}

// answering is a hook that answers every script with an error of the server.
type answering struct{ text string }

func (h answering) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h answering) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		err := serverError(h.text)
		cmd.SetErr(err)
		return err
	}
}

func (h answering) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

// (10): SCRIPT FLUSH before each step, alone and in a batch, is not noticed.
func TestFlushedScripts(t *testing.T) {
	srv := testserver.NewRedis(t)
	rdb := srv.Client(t)
	l := over(t, rdb, TTL(time.Second), Wait(time.Minute))
	flush := func() { check(t, rdb.ScriptFlush(context.Background()).Err()) }
	flush()
	lease := must(t, l, keys("a"))
	flush()
	testserver.Eventually(t, soon, func() bool { return renewalsOf(lease) > 0 }, "a renewal is confirmed")
	done := make(chan *Lease)
	go func() { done <- must(t, l, keys("a")) }()
	testserver.Eventually(t, soon, func() bool { return l.queue.waitingFor("lock:a") == 1 }, "a waiter stands in line")
	flush()
	free(t, lease)
	lease = <-done
	flush()
	free(t, lease)

	stop := make(chan struct{})
	var flushing sync.WaitGroup
	flushing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				flush()
			}
		}
	})
	parallel(64, 2000, func(i int) {
		err := l.Do(t.Context(), keys([]string{"x", "y", "z"}[i%3]), func(context.Context) error { return nil })
		if err != nil {
			t.Error(err)
		}
	})
	close(stop)
	flushing.Wait()
}

// C03: while redis-server restarts, errors are typed; afterwards work resumes without touching the service.
func TestRestartOfTheServer(t *testing.T) {
	srv := testserver.NewRedis(t)
	l := over(t, srv.Client(t), TTL(2*time.Second))
	lease := must(t, l, keys("a"))
	ctx := lease.Context(t.Context())
	srv.Kill(t)
	if _, err := l.Acquire(t.Context(), keys("b")); !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("while it is away: %v, want ErrUnavailable or ErrUnknownOutcome", err)
	}
	srv.RestartEmpty(t)
	testserver.Eventually(t, soon, func() bool {
		return l.Do(t.Context(), keys("b"), func(context.Context) error { return nil }) == nil
	}, "work resumes")
	<-ctx.Done() // the server has forgotten the lease
	if !errors.Is(context.Cause(ctx), ErrLost) {
		t.Errorf("the holder before the restart: %v, want ErrLost", context.Cause(ctx))
	}
	_ = lease.Release(t.Context())
}

// (14): wake-ups by a connection that is cut, or refused, cost time and nothing else.
func TestWakeUpsThatAreCut(t *testing.T) {
	l, p, rdb, prefix := proxied(t, Wait(time.Minute))
	rival := over(t, rdb, Prefix(prefix))
	for range 3 {
		theirs := must(t, rival, keys("a"))
		done := make(chan *Lease)
		go func() { done <- must(t, l, keys("a")) }()
		testserver.Eventually(t, soon, func() bool {
			return p.Count(script(acquireLua)) > 0 && rdb.PubSubNumSub(t.Context(), freeChannel(prefix+"lock:a")).Val()[freeChannel(prefix+"lock:a")] > 0
		}, "it listens")
		p.CutAll()
		free(t, theirs)
		free(t, <-done)
	}
}

// releaseMark occurs in the arguments of a release and of no other script.
const releaseMark = "PUBLISH"

func TestSubscriptionThatIsRefused(t *testing.T) {
	srv := testserver.NewRedis(t)
	admin := srv.Client(t)
	check(t, admin.Do(t.Context(), "ACL", "SETUSER", "keys", "on", ">secret", "~*", "+@all", "resetchannels").Err())
	restricted := func(o *redis.Options) { o.Username, o.Password = "keys", "secret" }
	a, b := over(t, srv.Client(t, restricted)), over(t, srv.Client(t, restricted))
	theirs := must(t, a, keys("a"))
	done := make(chan *Lease)
	go func() { done <- must(t, b, keys("a")) }()
	testserver.Eventually(t, soon, func() bool { return b.backend.(*redisBackend).watch.Load().refused.Load() }, "the subscription is refused")
	mon := srv.Monitor(t)
	free(t, theirs) // and so is the message of the release, which still releases, the first time it is sent
	if n := len(mon.Sent(t, theirs.h.held.Token, releaseMark)); n != 1 {
		t.Errorf("the release was sent %d times", n)
	}
	free(t, <-done)
}
