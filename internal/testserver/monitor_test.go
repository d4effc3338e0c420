package testserver_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMonitor_SeesWhatWasSentInOrder(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	rdb := srv.Client(t)
	prefix := srv.Prefix(t)
	m := srv.Monitor(t)

	odd := prefix + "quote\" back\\slash\r\nnull\x00 high\xff ünï"
	if err := rdb.Set(t.Context(), odd, "1", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Eval(t.Context(), "redis.call('GET', KEYS[1]) return 1", []string{odd}).Err(); err != nil {
		t.Fatal(err)
	}

	got := fmt.Sprint(m.Commands(t, prefix))
	want := fmt.Sprint([]testserver.Command{
		{Name: "SET", Args: []string{odd, "1", "ex", "60"}},
		{Name: "EVAL", Args: []string{"redis.call('GET', KEYS[1]) return 1", "1", odd}},
		{Name: "GET", Args: []string{odd}, Script: true},
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	if got, want := len(m.Sent(t, prefix)), 2; got != want {
		t.Errorf("sent by a client: got %d, want %d", got, want)
	}
	if got, want := m.Count(t, "get", prefix), 0; got != want {
		t.Errorf("GET sent by a client: got %d, want %d", got, want)
	}
	if got, want := m.Count(t, "EVAL", prefix), 1; got != want {
		t.Errorf("EVAL sent by a client: got %d, want %d", got, want)
	}
	m.Reset(t)
	if got := m.Commands(t, prefix); len(got) != 0 {
		t.Errorf("after Reset: got %v, want none", got)
	}
}

func TestMonitor_MissesNothingThatWasAnswered(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	rdb := srv.Client(t)
	key := srv.Prefix(t) + "n"
	m := srv.Monitor(t)
	for i := 1; i <= 200; i++ {
		if err := rdb.Incr(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		if got := m.Count(t, "INCR", key); got != i {
			t.Fatalf("after %d INCR: counted %d", i, got)
		}
	}
	if err := rdb.Expire(t.Context(), key, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
}
