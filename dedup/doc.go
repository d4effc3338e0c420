// Package dedup answers a request that comes twice with the result of the first, and lets the work be done once.
package dedup
