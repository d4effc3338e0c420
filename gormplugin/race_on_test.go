//go:build race

package gormplugin

const raceEnabled = true
