package telemetry

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"
)

// Meter makes the instruments of one package. An instrument that cannot be created is reported to OpenTelemetry's error
// handler and replaced by one that does nothing: telemetry never fails a request or a start.
type Meter struct{ m metric.Meter }

// NewMeter returns the meter of the package with that import path, from the given provider or else the global one.
func NewMeter(scope string, given metric.MeterProvider) Meter {
	if given == nil {
		given = otel.GetMeterProvider()
	}
	return Meter{given.Meter(scope, metric.WithInstrumentationVersion(Version()), metric.WithSchemaURL(semconv.SchemaURL))}
}

// Histogram returns a histogram with the given boundaries.
func (m Meter) Histogram(name, unit, description string, buckets []float64) metric.Float64Histogram {
	h, err := m.m.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(buckets...))
	if err != nil {
		otel.Handle(err)
		return noop.Float64Histogram{}
	}
	return h
}

// Counter returns a counter.
func (m Meter) Counter(name, unit, description string) metric.Int64Counter {
	c, err := m.m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	if err != nil {
		otel.Handle(err)
		return noop.Int64Counter{}
	}
	return c
}

// UpDownCounter returns a counter that may fall.
func (m Meter) UpDownCounter(name, unit, description string) metric.Int64UpDownCounter {
	c, err := m.m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	if err != nil {
		otel.Handle(err)
		return noop.Int64UpDownCounter{}
	}
	return c
}

// Gauge returns a gauge.
func (m Meter) Gauge(name, unit, description string) metric.Int64Gauge {
	g, err := m.m.Int64Gauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	if err != nil {
		otel.Handle(err)
		return noop.Int64Gauge{}
	}
	return g
}

// FloatGauge returns a gauge of fractions.
func (m Meter) FloatGauge(name, unit, description string) metric.Float64Gauge {
	g, err := m.m.Float64Gauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	if err != nil {
		otel.Handle(err)
		return noop.Float64Gauge{}
	}
	return g
}

// ObservableGauge makes a gauge whose values are asked for at each collection: observe is given a function that records
// one. It returns what ends that.
func (m Meter) ObservableGauge(name, unit, description string, observe func(ctx context.Context, record func(value int64, opts ...metric.ObserveOption))) (stop func()) {
	g, err := m.m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	reg, err := m.m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		observe(ctx, func(value int64, opts ...metric.ObserveOption) { o.ObserveInt64(g, value, opts...) })
		return nil
	}, g)
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	return func() {
		if err := reg.Unregister(); err != nil {
			otel.Handle(err)
		}
	}
}
