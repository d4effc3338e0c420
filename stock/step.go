package stock

import "strconv"

// A StepOption changes one step of an operator: an Adjust, a Restore or a Thaw.
type StepOption func(*step)

type step struct {
	seen *SurveyedItem
}

// AsSeen makes the step only if the item is still as a [Survey] has seen it: for a correction that was worked out from that
// survey, and would be made twice if somebody had corrected the item meanwhile. Otherwise nothing happens and the error is
// ErrStale. Adjust and Restore compare what came in and went out by other steps and by Warm, and which counters are
// missing; Thaw compares the item's state and the units withheld. What is sold or given back meanwhile does not matter.
// A repeat of a step that has been made is answered as ever. nil changes nothing.
func AsSeen(it *SurveyedItem) StepOption { return func(s *step) { s.seen = it } }

func newStep(item string, opts []StepOption) (step, error) {
	var s step
	for _, opt := range opts {
		if opt != nil {
			opt(&s)
		}
	}
	if s.seen != nil && (s.seen.Item != item || s.seen.switches == nil) {
		return step{}, misuse("AsSeen wants the same item as a Survey has returned it")
	}
	return s, nil
}

// counter is what adjust.lua compares: the switch of a partition and its counter, empty where all is the same.
func (s step) counter(part int) string {
	if s.seen == nil {
		return ""
	}
	sw, there := s.seen.switches[part]
	if !there {
		return "-"
	}
	text := strconv.Itoa(sw.steps) + " " + strconv.FormatInt(sw.warmed, 10) + " " + strconv.FormatInt(sw.whole, 10)
	if sw.left < 0 {
		return text + " 0"
	}
	return text + " 1"
}

// sale is what switch.lua compares.
func (s step) sale(part int) string {
	if s.seen == nil {
		return ""
	}
	sw, there := s.seen.switches[part]
	if !there {
		return "-"
	}
	return sw.state + " " + strconv.FormatInt(sw.withheld, 10)
}

// seenSwitch is a switch with its counter as a survey has seen them.
type seenSwitch struct {
	state                                 string
	steps                                 int
	warmed, whole, withheld, moving, anew int64
	left                                  int64
}
