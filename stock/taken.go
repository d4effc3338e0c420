package stock

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// packTrace shortens a traceparent from 55 bytes to 32, for memory in Redis: trace id and span id in base64. One of another
// version or with other flags stays as it is.
func packTrace(traceparent string) string {
	ids, known := strings.CutPrefix(traceparent, "00-")
	ids, sampled := strings.CutSuffix(ids, "-01")
	if !known || !sampled || len(traceparent) != 55 || ids[32] != '-' {
		return traceparent
	}
	raw, err := hex.DecodeString(ids[:32] + ids[33:])
	if err != nil || strings.ToLower(ids) != ids {
		return traceparent
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// unpackTrace undoes packTrace.
func unpackTrace(text string) string {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != 24 {
		return text
	}
	return "00-" + hex.EncodeToString(raw[:16]) + "-" + hex.EncodeToString(raw[16:]) + "-01"
}

// unfold returns the fields of a request record or of a hold by name; see common.lua for how they are kept. A record has
// the fields confirmed and released only if it is the proof. What cannot be read is returned as it is.
func unfold(f map[string]string, names ...string) map[string]string {
	values := strings.Split(f["taken"], " ")
	if len(values) != len(names) {
		return f
	}
	all := map[string]string{"state": stateHeld, "confirmed": "0", "released": "0"}
	for i, name := range names {
		all[name] = values[i]
	}
	for name, value := range f {
		all[name] = value
	}
	if all["proof"] == "0" {
		delete(all, "confirmed")
		delete(all, "released")
	}
	all["trace"] = unpackTrace(f["trace"])
	return all
}

func unfoldRecord(f map[string]string) map[string]string {
	return unfold(f, "nth", "left", "proof")
}

func unfoldHold(f map[string]string) map[string]string {
	return unfold(f, "nth", "at", "deadline")
}
