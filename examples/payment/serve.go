package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// serve takes orders, lands them and closes those that nobody pays for, until ctx ends.
func (s *shop) serve(ctx context.Context, listener net.Listener) error {
	routes := s.routes()
	if err := s.guard.Validate(routes); err != nil {
		return err
	}
	for _, sale := range s.sales {
		if err := s.open(ctx, sale); err != nil { // an alarm, and no reason to stay down: orders must land and be paid for
			slog.ErrorContext(ctx, "an item is not on sale", "item", sale.Item, "error", err)
		}
	}
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended, running := make(chan error, 2), 2
	go func() { ended <- s.lander.Worker().Run(behind) }()
	go func() { ended <- s.lander.Sweeper().Run(behind) }()
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()

	var err error
	select {
	case err = <-failed:
	case err = <-ended: // the Counter was made without stream or hold
		running--
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(grace)) // no new request; those that run come to their end
	stop()                                         // worker and sweeper finish what they have in hand, within 10 s
	for range running {
		err = errors.Join(err, <-ended)
	}
	return errors.Join(err, s.guard.Close(grace)) // renewals and records; then the caller closes Redis and SQL
}
