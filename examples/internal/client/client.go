// Package client sends requests as a careful client does: with an idempotency key, and again under the same key as long
// as the answer says that it may come again.
package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// Answer is a final answer.
type Answer struct {
	Status   int
	Body     string
	Replayed bool // the first answer again
}

// pause is less than Retry-After asks for, so that an example ends soon; tries are many enough for a slow machine.
const pause, tries = 100 * time.Millisecond, 100

// Post posts JSON under an idempotency key until the answer is final. One with Retry-After is not: the same request may be
// sent again, and has one effect however often it is sent.
func Post(ctx context.Context, c *http.Client, url, key string, header map[string]string, body string) (Answer, error) {
	return Send(ctx, c, http.MethodPost, url, key, header, body)
}

// Send is Post with any method; an empty key is not sent.
func Send(ctx context.Context, c *http.Client, method, url, key string, header map[string]string, body string) (Answer, error) {
	for range tries {
		a, again, err := send(ctx, c, method, url, key, header, body)
		if err != nil || !again {
			return a, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
	}
	return Answer{}, errors.New("no final answer after many tries")
}

func send(ctx context.Context, c *http.Client, method, url, key string, header map[string]string, body string) (a Answer, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return Answer{}, false, err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	res, err := c.Do(req)
	if err != nil {
		return Answer{}, false, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return Answer{res.StatusCode, string(text), res.Header.Get("Idempotent-Replayed") != ""}, res.Header.Get("Retry-After") != "", err
}
