package stock

import "time"

// Settings says how a Counter was made, for whoever works behind it.
type Settings struct {
	// Hold is what WithHold was given; 0 without.
	Hold time.Duration
	// Stream is true with WithStream.
	Stream bool
	// Partitions is what WithPartitions was given; 0 is the flat keyspace.
	Partitions int
	// Quota is true for a Counter that NewQuota has made.
	Quota bool
}

// Settings returns how the Counter was made.
func (c *Counter) Settings() Settings {
	return Settings{Hold: c.cfg.hold, Stream: c.cfg.stream, Partitions: c.keys.parts, Quota: c.keys.quota}
}
