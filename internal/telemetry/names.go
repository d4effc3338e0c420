// Package telemetry holds every name under which holdfast shows itself in traces and metrics, and the few functions
// that make spans and instruments the same way in every package.
package telemetry

import "go.opentelemetry.io/otel/attribute"

// Spans. All are INTERNAL unless said.
const (
	SpanLockAcquire   = "holdfast.lock.acquire"
	SpanLockHold      = "holdfast.lock.hold"
	SpanDedupBegin    = "holdfast.dedup.begin"
	SpanDedupComplete = "holdfast.dedup.complete"
	SpanStockDeduct   = "holdfast.stock.deduct"
	SpanStockConfirm  = "holdfast.stock.confirm"
	SpanStockRelease  = "holdfast.stock.release"

	SpanReconcileCompare = "holdfast.reconcile.compare"
	SpanReconcileApply   = "holdfast.reconcile.apply"
)

// Events on spans.
const (
	EventRenewFailed = "holdfast.lock.renew_failed"
	EventLost        = "holdfast.lock.lost"
	EventAttempt     = "holdfast.lock.attempt"
)

// Attributes.
const (
	HTTPRoute         = attribute.Key("http.route")
	HTTPRequestMethod = attribute.Key("http.request.method")
	ErrorType         = attribute.Key("error.type")
	DBSystemName      = attribute.Key("db.system.name")
	DBCollectionName  = attribute.Key("db.collection.name")
	DBOperationName   = attribute.Key("db.operation.name")

	RuleName    = attribute.Key("holdfast.rule.name")
	RequestHash = attribute.Key("holdfast.request.hash")

	LockMode     = attribute.Key("holdfast.lock.mode")
	LockOutcome  = attribute.Key("holdfast.lock.outcome")
	LockAttempts = attribute.Key("holdfast.lock.attempts")
	LockWait     = attribute.Key("holdfast.lock.wait")
	LockKeys     = attribute.Key("holdfast.lock.keys")
	LockFence    = attribute.Key("holdfast.lock.fence")
	LockRenewals = attribute.Key("holdfast.lock.renewals")
	LockEnd      = attribute.Key("holdfast.lock.end")
	LockReason   = attribute.Key("holdfast.lock.reason")
	LostReason   = attribute.Key("reason")
	PlannedDelay = attribute.Key("holdfast.lock.delay.planned")
	RealDelay    = attribute.Key("holdfast.lock.delay.real")
	KeyHash      = attribute.Key("holdfast.key.hash")
	KeyTemplate  = attribute.Key("holdfast.key.template")
	RawKey       = attribute.Key("holdfast.key")

	DedupOutcome = attribute.Key("holdfast.dedup.outcome")
	DedupAttempt = attribute.Key("holdfast.dedup.attempt")
	DedupRecord  = attribute.Key("holdfast.dedup.record")
	DedupStored  = attribute.Key("holdfast.dedup.stored")

	StockOutcome       = attribute.Key("holdfast.stock.outcome")
	StockUnits         = attribute.Key("holdfast.stock.units")
	StockStrategy      = attribute.Key("holdfast.stock.strategy")
	StockSegmentsTried = attribute.Key("holdfast.stock.segments_tried")
	StockMovement      = attribute.Key("holdfast.stock.movement")
	ItemHash           = attribute.Key("holdfast.item.hash")
	ItemID             = attribute.Key("holdfast.item.id") // of items that were chosen at start-up only

	DBOutcome = attribute.Key("holdfast.db.outcome")
	DBFence   = attribute.Key("holdfast.db.fence")

	ReconcileDifferences = attribute.Key("holdfast.reconcile.differences")
	ReconcileClass       = attribute.Key("holdfast.reconcile.class")
	ReconcileScope       = attribute.Key("holdfast.reconcile.scope") // all, or asked: a comparison of some items

	LandingOutcome = attribute.Key("holdfast.landing.outcome")

	MessagingSystem        = attribute.Key("messaging.system")
	MessagingOperationName = attribute.Key("messaging.operation.name")
	MessagingOperationType = attribute.Key("messaging.operation.type")
	MessagingDestination   = attribute.Key("messaging.destination.name")
	MessagingTemplate      = attribute.Key("messaging.destination.template")
	MessagingGroup         = attribute.Key("messaging.consumer.group.name")
	MessagingMessageID     = attribute.Key("messaging.message.id")
	MessagingBatchCount    = attribute.Key("messaging.batch.message_count")
)

// Metrics, by name.
const (
	MetricLockAcquireDuration  = "holdfast.lock.acquire.duration"     // histogram, s
	MetricLockAcquireAttempts  = "holdfast.lock.acquire.attempts"     // histogram, {attempt}
	MetricLockHoldDuration     = "holdfast.lock.hold.duration"        // histogram, s
	MetricLockWaiting          = "holdfast.lock.waiting"              // up-down counter, {request}
	MetricLockHeld             = "holdfast.lock.held"                 // up-down counter, {lock}
	MetricLockRenewals         = "holdfast.lock.renewals"             // counter, {renewal}
	MetricLockHandovers        = "holdfast.lock.handovers"            // counter, {handover}
	MetricLockWakeups          = "holdfast.lock.wakeups"              // counter, {wakeup}
	MetricLockRefusals         = "holdfast.lock.refusals"             // counter, {request}
	MetricLockOutOfOrder       = "holdfast.lock.out_of_order"         // counter, {request}
	MetricLockForced           = "holdfast.lock.forced"               // counter, {lock}
	MetricDedupBeginDuration   = "holdfast.dedup.begin.duration"      // histogram, s
	MetricDedupResponseSize    = "holdfast.dedup.response.size"       // histogram, By
	MetricStockDeductDuration  = "holdfast.stock.deduct.duration"     // histogram, s
	MetricStockUnits           = "holdfast.stock.units"               // counter, {unit}
	MetricStockRemaining       = "holdfast.stock.remaining"           // gauge, {unit}
	MetricDBChecks             = "holdfast.db.checks"                 // counter, {check}
	MetricLandingLag           = "holdfast.landing.lag"               // gauge, s
	MetricLandingPending       = "holdfast.landing.pending"           // gauge, {order}
	MetricLandingOrders        = "holdfast.landing.orders"            // counter, {order}
	MetricReconcileDifferences = "holdfast.reconcile.differences"     // gauge, {difference}
	MetricReconcileLastSuccess = "holdfast.reconcile.last_success"    // gauge, s
	MetricMessagesSent         = "messaging.client.sent.messages"     // counter, {message}
	MetricMessagesConsumed     = "messaging.client.consumed.messages" // counter, {message}
	MetricProcessDuration      = "messaging.process.duration"         // histogram, s
)

// WaitBuckets are the boundaries, in seconds, of the histograms of waits and round trips.
func WaitBuckets() []float64 {
	return []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
}

// HTTPBuckets are the boundaries, in seconds, that the HTTP convention advises.
func HTTPBuckets() []float64 {
	return []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}
}

// AttemptBuckets are the boundaries of the histogram of attempts.
func AttemptBuckets() []float64 { return []float64{1, 2, 3, 5, 8, 13, 21, 34} }
