package middleware

import (
	"context"
	"log/slog"
	"unicode"

	chimiddleware "github.com/go-chi/chi/v5/middleware"
)

// withRequestID adds the id that chi's RequestID has given the request to whatever is logged in the request's context,
// so that the lines of lock and dedup, which know nothing of chi, are found with those of the service.
type withRequestID struct{ slog.Handler }

func (h withRequestID) Handle(ctx context.Context, rec slog.Record) error {
	if id := chimiddleware.GetReqID(ctx); id != "" {
		rec = rec.Clone()
		rec.AddAttrs(slog.String("request_id", printable(id)))
	}
	return h.Handler.Handle(ctx, rec)
}

func (h withRequestID) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withRequestID{h.Handler.WithAttrs(attrs)}
}

func (h withRequestID) WithGroup(name string) slog.Handler {
	return withRequestID{h.Handler.WithGroup(name)}
}

// printable cuts what a client may have sent to 64 printable bytes.
func printable(s string) string {
	s = s[:min(len(s), 64)]
	for i, c := range s {
		if c > unicode.MaxASCII || !unicode.IsPrint(c) {
			return s[:i]
		}
	}
	return s
}
