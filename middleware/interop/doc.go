// Package interop tests that holdfast is mounted on chi routers which other libraries fill: huma's adapter for chi, and
// a server that oapi-codegen has made. It is a module of its own, so that what they need is nobody else's dependency.
package interop
