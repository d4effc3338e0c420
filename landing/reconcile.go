package landing

// Reconciler compares Redis with SQL.
type Reconciler struct{ e *engine }
