// Package deduptest holds the tests that every [dedup.Store] must pass, and a store in memory that passes them.
//
//	func TestStore(t *testing.T) {
//		deduptest.Run(t, func(t *testing.T) dedup.Store { return mystore.New(...) })
//	}
//
// It is imported by tests only.
package deduptest
