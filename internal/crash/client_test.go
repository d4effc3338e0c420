package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/checker"
	"github.com/holdfast-go/holdfast/internal/fault"
)

// wish is an order that a client wants, and goes on wanting under the same key.
type wish struct {
	key        string
	user, item int64
}

// answer is what a client got, the zero value if nothing.
type answer struct {
	status  int
	order   string
	request string
	again   bool   // the first outcome once more
	code    string // of a problem
}

func (a answer) ok() bool { return a.status/100 == 2 }

// final tells whether it is no use to ask again.
func (a answer) final() bool {
	if a.ok() {
		return true
	}
	switch fault.Type(a.code) {
	case fault.Insufficient, fault.LimitReached, fault.Released, fault.Mismatch, fault.NotStarted, fault.Ended, fault.Paused,
		fault.NotWarmed, fault.Duplicate:
		return true
	}
	return false
}

// market is all clients: it asks, and writes the history.
type market struct {
	http     *http.Client
	rec      *checker.Recorder
	asked    atomic.Int64
	requests sync.Map // client's key -> request id, as soon as an answer had it
}

func newMarket(conns int, timeout time.Duration) *market {
	return &market{
		http: &http.Client{Timeout: timeout, Transport: &http.Transport{MaxIdleConnsPerHost: conns, MaxConnsPerHost: conns}},
		rec:  checker.NewRecorder(nil),
	}
}

// buy asks once for the wish and writes the answer down.
func (m *market) buy(ctx context.Context, addr string, w wish) answer {
	start := time.Now()
	a := m.post(ctx, addr, fmt.Sprintf("/items/%d/orders", w.item), w)
	if a.request != "" {
		m.requests.LoadOrStore(w.key, a.request)
	}
	outcome := a.code
	switch {
	case a.ok() && a.again:
		outcome = checker.Replayed
	case a.ok():
		outcome = checker.Deducted
	case a.status == 0:
		outcome = checker.NoAnswer
	case !a.final():
		outcome = string(fault.UnknownOutcome) // it may have been done in part
	}
	m.rec.Add(checker.Record{
		ID: strconv.FormatInt(m.asked.Add(1), 10), Op: checker.Deduct, Request: w.key, Order: a.order,
		User: strconv.FormatInt(w.user, 10), Item: strconv.FormatInt(w.item, 10), Activity: strconv.Itoa(activity), Units: 1,
		Outcome: outcome, Instance: addr, Start: start, End: time.Now(),
	})
	return a
}

// end asks for an order to be paid or closed, and writes the answer down.
func (m *market) end(ctx context.Context, addr, order, how string) answer {
	start := time.Now()
	a := m.post(ctx, addr, "/orders/"+order+"/"+how, wish{key: order + how})
	outcome := a.code
	switch {
	case a.ok():
		outcome = checker.Applied
	case a.status == 0:
		outcome = checker.NoAnswer
	case a.code == "":
		outcome = string(fault.UnknownOutcome)
	}
	m.rec.Add(checker.Record{Op: how, Order: order, Outcome: outcome, Instance: addr, Start: start, End: time.Now()})
	return a
}

func (m *market) post(ctx context.Context, addr, path string, w wish) (a answer) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+path, strings.NewReader(""))
	if err != nil {
		return answer{}
	}
	req.Header.Set("Idempotency-Key", w.key)
	req.Header.Set("X-User", strconv.FormatInt(w.user, 10))
	res, err := m.http.Do(req)
	if err != nil {
		return answer{}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{} // an answer that breaks off is none
	}
	a = answer{
		status: res.StatusCode, order: res.Header.Get("X-Order"), request: res.Header.Get("X-Request"),
		again: res.Header.Get("Idempotent-Replayed") != "",
	}
	if a.ok() {
		var b bought
		_ = json.Unmarshal(text, &b) // pay and close have no body
		a.again = a.again || b.Before
		if b.Order != "" {
			a.order = b.Order
		}
		return a
	}
	var p struct{ Code string }
	_ = json.Unmarshal(text, &p) // a status without a problem is no final answer
	a.code = p.Code
	return a
}

// requestOf returns the request id that the shop uses in the place of a client's key, "" if no answer had it.
func (m *market) requestOf(w wish) string {
	id, _ := m.requests.Load(w.key)
	text, _ := id.(string)
	return text
}

// history returns what was recorded, with the request ids that the shop uses in the place of the clients' keys.
func (m *market) history() []checker.Record {
	recs := m.rec.Records()
	for i := range recs {
		if id, known := m.requests.Load(recs[i].Request); known {
			recs[i].Request = id.(string)
		}
	}
	return recs
}
