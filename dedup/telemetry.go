package dedup

import (
	"context"
	"log/slog"
)

type instruments struct {
	log *slog.Logger
}

func newInstruments(cfg *config) *instruments { return &instruments{log: cfg.log} }

func traceParent(context.Context) string { return "" }

func (i *instruments) mayEvict(ctx context.Context, policy string) {
	i.log.LogAttrs(ctx, slog.LevelWarn, "dedup: Redis may evict records, and a forgotten request runs again: set maxmemory-policy noeviction", slog.String("policy", policy))
}

func (i *instruments) corrupt(ctx context.Context, q *call, a Answer) {}
func (i *instruments) settledLate(c *Claim, err error)                {}
func (i *instruments) renewFailed(c *Claim, err error)                {}
