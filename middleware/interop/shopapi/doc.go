// Package shopapi is a server for the chi router that oapi-codegen has made of openapi.yaml.
package shopapi

//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config generate.yaml openapi.yaml
