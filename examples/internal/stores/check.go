package stores

import (
	"errors"
	"fmt"
)

// Check collects what the self-check of an example finds broken.
type Check struct{ faults []error }

// Must notes a fault unless ok.
func (c *Check) Must(ok bool, format string, args ...any) {
	if !ok {
		c.faults = append(c.faults, fmt.Errorf(format, args...))
	}
}

// Err is nil if every rule held.
func (c *Check) Err() error { return errors.Join(c.faults...) }
