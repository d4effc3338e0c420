package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// userMode says who buys, and how a client retries.
type userMode string

const (
	distinct userMode = "distinct"
	one      userMode = "one"
	zipf     userMode = "zipf"
	sameID   userMode = "same-id"
	newID    userMode = "new-id"
)

var userModes = []userMode{distinct, one, zipf, sameID, newID}

// times is how often the clients of same-id and new-id send what they want.
const times = 3

func (m *userMode) String() string { return string(*m) }

// Set implements flag.Value.
func (m *userMode) Set(s string) error {
	if *m = userMode(s); !slices.Contains(userModes, *m) {
		return fmt.Errorf("%q is none of %s", s, strings.Trim(fmt.Sprint(userModes), "[]"))
	}
	return nil
}

func (m userMode) label() string {
	switch m {
	case one:
		return "one and the same (measures the limit)"
	case zipf:
		return "zipf, a few of them very often"
	case sameID:
		return fmt.Sprintf("all different, each request sent %d times under one id", times)
	case newID:
		return fmt.Sprintf("all different, each wants it %d times under a new id (the limit must stop that)", times)
	}
	return "all different"
}

// request is one request of the plan.
type request struct {
	user int64
	id   string // the client's Idempotency-Key
}

// plan returns what one buyer sends, request after request. It depends on the seed and on nothing else, so the same seed
// sends the same requests, as many of them as there is time for.
func (m userMode) plan(seed uint64, buyer, buyers int) func() request {
	rnd := rand.New(rand.NewPCG(seed, uint64(buyer)))
	z := rand.NewZipf(rnd, 1.1, 1, 100_000)
	i := -1
	return func() request {
		i++
		r := request{id: fmt.Sprintf("%d-%d-%d", seed, buyer, i)}
		nth := i // which of this buyer's users
		switch m {
		case one:
			r.user = 1
			return r
		case zipf:
			r.user = int64(z.Uint64()) + 1
			return r
		case sameID:
			nth /= times
			r.id = fmt.Sprintf("%d-%d-%d", seed, buyer, nth)
		case newID:
			nth /= times
		}
		r.user = int64(nth)*int64(buyers) + int64(buyer) + 1
		return r
	}
}
