package faultproxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// fixture is a proxy with a client in front of and one beside it.
type fixture struct {
	proxy  *faultproxy.Proxy
	rdb    *redis.Client // through the proxy
	direct *redis.Client
	key    string
}

// once makes a client that sends each command once, on one connection at a time.
func once(o *redis.Options) { o.MaxRetries = -1 }

func impatient(o *redis.Options) {
	once(o)
	o.ReadTimeout = 100 * time.Millisecond
	o.ContextTimeoutEnabled = true
}

func newFixture(t *testing.T, changes ...func(*redis.Options)) fixture {
	t.Helper()
	srv := testserver.Redis(t)
	p := faultproxy.Redis(t, srv.Addr())
	through := func(o *redis.Options) { o.Addr = p.Addr() }
	f := fixture{p, srv.Client(t, append(changes, through)...), srv.Client(t), srv.Prefix(t) + "n"}
	f.ping(t)
	return f
}

// ping connects, so that the commands with which the client begins are over.
func (f fixture) ping(t *testing.T) {
	t.Helper()
	// A busy machine may be slower than an impatient client.
	testserver.Eventually(t, 10*time.Second, func() bool { return f.rdb.Ping(t.Context()).Err() == nil }, "the server answers through the proxy")
}

// value returns what the server has.
func (f fixture) value(t *testing.T) int64 {
	t.Helper()
	n, err := f.direct.Get(t.Context(), f.key).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return n
}

func (f fixture) wantValue(t *testing.T, want int64) {
	t.Helper()
	if got := f.value(t); got != want {
		t.Errorf("the server has %d, want %d", got, want)
	}
}

// The hazard that the whole project is built around: go-redis repeats a command
// whose reply was lost, and the server executes it twice.
func TestLoseReply_GoRedisSendsAgainByDefault(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rule := f.proxy.On(faultproxy.Named("INCR"), faultproxy.LoseReply())

	n, err := f.rdb.Incr(t.Context(), f.key).Result()

	if err != nil || n != 2 {
		t.Errorf("INCR: got %d, %v; want 2: executed, lost, executed again", n, err)
	}
	f.wantValue(t, 2)
	if got := f.proxy.Count(faultproxy.Named("incr").Containing(f.key)); got != 2 {
		t.Errorf("INCR sent %d times, want 2", got)
	}
	if got := rule.Fired(); got != 1 {
		t.Errorf("rule fired %d times, want 1", got)
	}
}

func TestLoseReply_TheServerHasExecuted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, once)
	rule := f.proxy.On(faultproxy.Named("INCR"), faultproxy.LoseReply())

	err := f.rdb.Incr(t.Context(), f.key).Err()

	if !isCut(err) {
		t.Errorf("INCR: got %v, want a closed connection", err)
	}
	rule.Wait(t)
	f.wantValue(t, 1)
	f.ping(t)
}

func TestLoseRequest_TheServerHasNotExecuted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, once)
	rule := f.proxy.On(faultproxy.Named("INCR"), faultproxy.LoseRequest())

	err := f.rdb.Incr(t.Context(), f.key).Err()

	if !isCut(err) {
		t.Errorf("INCR: got %v, want a closed connection", err)
	}
	rule.Wait(t)
	f.wantValue(t, 0)
	f.ping(t)
}

func TestCutRequest_PartOfACommandIsNotExecuted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, once)
	f.proxy.On(faultproxy.Named("INCR"), faultproxy.CutRequest(12))
	if err := f.rdb.Incr(t.Context(), f.key).Err(); !isCut(err) {
		t.Errorf("INCR: got %v, want a closed connection", err)
	}
	f.wantValue(t, 0)
}

func TestCutReply_PartOfAReplyIsAnError(t *testing.T) {
	t.Parallel()
	f := newFixture(t, once)
	f.proxy.On(faultproxy.Named("INCR"), faultproxy.CutReply(2)) // of ":1\r\n"
	if err := f.rdb.Incr(t.Context(), f.key).Err(); !isCut(err) {
		t.Errorf("INCR: got %v, want a closed connection", err)
	}
	f.wantValue(t, 1)
}

func TestHangReply_TheClientWaitsUntilItsTimeout(t *testing.T) {
	t.Parallel()
	f := newFixture(t, impatient)
	rule := f.proxy.On(faultproxy.Named("INCR"), faultproxy.HangReply())
	if err := f.rdb.Incr(t.Context(), f.key).Err(); !isTimeout(err) {
		t.Errorf("INCR: got %v, want a timeout", err)
	}
	rule.Wait(t)
	f.wantValue(t, 1)
	f.ping(t)
}

func TestHangRequest_TheClientWaitsAndTheServerHasNotExecuted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, impatient)
	f.proxy.On(faultproxy.Named("INCR"), faultproxy.HangRequest())
	if err := f.rdb.Incr(t.Context(), f.key).Err(); !isTimeout(err) {
		t.Errorf("INCR: got %v, want a timeout", err)
	}
	f.wantValue(t, 0)
	f.ping(t)
}

func TestHoldRequest_ArrivesLateThoughTheClientHasGivenUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t, impatient)
	rule := f.proxy.On(faultproxy.Named("INCR"), faultproxy.HoldRequest())
	if err := f.rdb.Incr(t.Context(), f.key).Err(); !isTimeout(err) {
		t.Errorf("INCR: got %v, want a timeout", err)
	}
	f.wantValue(t, 0)

	rule.Release()

	testserver.Eventually(t, 10*time.Second, func() bool { return f.value(t) == 1 }, "the late command arrives")
}

func TestHoldReply_ExecutedAndNotYetKnown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, once)
	rule := f.proxy.On(faultproxy.Named("INCR"), faultproxy.HoldReply())
	result := make(chan error, 1)
	go func() { result <- f.rdb.Incr(t.Context(), f.key).Err() }()

	rule.Wait(t)
	f.wantValue(t, 1)
	select {
	case err := <-result:
		t.Fatalf("answered before the release: %v", err)
	default:
	}

	rule.Release()
	if err := <-result; err != nil {
		t.Errorf("INCR after the release: %v", err)
	}
}

func TestRepeat_TheServerGetsItTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t, once)
	f.proxy.On(faultproxy.Named("INCR"), faultproxy.Repeat())
	if n, err := f.rdb.Incr(t.Context(), f.key).Result(); err != nil || n != 2 {
		t.Errorf("INCR: got %d, %v; want 2", n, err)
	}
	if n, err := f.rdb.Incr(t.Context(), f.key).Result(); err != nil || n != 3 {
		t.Errorf("next INCR: got %d, %v; want 3", n, err)
	}
}

func TestDelay_RequestReplyAndAll(t *testing.T) {
	t.Parallel()
	f := newFixture(t, once)
	const delay = 60 * time.Millisecond
	incr := func() time.Duration {
		start := time.Now()
		if err := f.rdb.Incr(t.Context(), f.key).Err(); err != nil {
			t.Fatal(err)
		}
		return time.Since(start)
	}
	f.proxy.On(faultproxy.Named("INCR"), faultproxy.DelayRequest(delay))
	if got := incr(); got < delay {
		t.Errorf("with DelayRequest: took %v, want at least %v", got, delay)
	}
	f.proxy.On(faultproxy.Named("INCR"), faultproxy.DelayReply(delay))
	if got := incr(); got < delay {
		t.Errorf("with DelayReply: took %v, want at least %v", got, delay)
	}
	f.proxy.Delay(delay)
	if got := incr(); got < delay {
		t.Errorf("with Delay: took %v, want at least %v", got, delay)
	}
	f.proxy.Delay(0)
	f.wantValue(t, 3)
}

// In a pipeline the replies before the lost one arrive, and the server executes
// the commands after it.
func TestLoseReply_InTheMiddleOfAPipeline(t *testing.T) {
	t.Parallel()
	f := newFixture(t, once)
	f.proxy.On(faultproxy.Named("INCR").Nth(3), faultproxy.LoseReply())
	answered := incrFive(t, f)
	if diff := cmp.Diff([]bool{true, true, false, false, false}, answered); diff != "" {
		t.Errorf("answered (-want +got):\n%s", diff)
	}
	testserver.Eventually(t, 10*time.Second, func() bool { return f.value(t) == 5 }, "all five are executed")
}

// What was sent before the lost command is executed and answered; it and the rest
// never arrive.
func TestLoseRequest_InTheMiddleOfAPipeline(t *testing.T) {
	t.Parallel()
	f := newFixture(t, once)
	f.proxy.On(faultproxy.Named("INCR").Nth(3), faultproxy.LoseRequest())
	answered := incrFive(t, f)
	if diff := cmp.Diff([]bool{true, true, false, false, false}, answered); diff != "" {
		t.Errorf("answered (-want +got):\n%s", diff)
	}
	f.wantValue(t, 2)
}

// incrFive sends five INCR in one pipeline and returns which were answered.
func incrFive(t *testing.T, f fixture) []bool {
	t.Helper()
	var answers []*redis.IntCmd
	_, err := f.rdb.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for range 5 {
			answers = append(answers, pipe.Incr(t.Context(), f.key))
		}
		return nil
	})
	if err == nil {
		t.Error("the pipeline has no error")
	}
	var got []bool
	for _, a := range answers {
		got = append(got, a.Err() == nil)
	}
	return got
}

// isCut says whether an error is that of a connection that was closed.
func isCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &e) && e.Timeout()
}
