// Package otherplugins tests gormplugin beside the plugins of gorm that services use with it: optimisticlock and
// soft_delete, which are field types, and dbresolver and OpenTelemetry, which db.Use takes before or after it. It is a
// module of its own, so that none of them is a dependency of holdfast.
package otherplugins
