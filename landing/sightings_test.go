package landing

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/stock"
)

// sighted is what two looks have seen: many differences, spread over items.
func sighted(items, differences int) (*sightings, *judging) {
	s := &sightings{last: map[subject]Difference{}, sure: map[subject]Difference{}, settled: map[string]int{}}
	j := &judging{look: &look{Survey: &stock.Survey{}, items: map[string]*stock.SurveyedItem{}}}
	for i := range items {
		j.items[fmt.Sprint(i)] = &stock.SurveyedItem{Item: fmt.Sprint(i)}
	}
	for i := range differences {
		j.found = append(j.found, Difference{Class: OrderWithoutMarker, Item: fmt.Sprint(i % items), Order: fmt.Sprint(i)})
	}
	s.add(j)
	s.add(j)
	return s, j
}

// A Redis that has lost everything leaves a difference for each order of each item: reporting them costs as much as there are
// differences, whatever the number of items.
func TestAReportCostsAsMuchAsThereAreDifferences(t *testing.T) {
	t.Parallel()
	const differences = 20_000
	cost := func(items int) time.Duration {
		s, j := sighted(items, differences)
		least := time.Hour
		for range 3 {
			start := time.Now()
			if rep := s.report(j); len(rep.Differences) != differences || len(rep.Unsettled) != 0 {
				t.Fatalf("reported %d differences, unsettled %v", len(rep.Differences), rep.Unsettled)
			}
			least = min(least, time.Since(start))
		}
		return least
	}
	few, many := cost(10), cost(2000)
	if many > 20*few+20*time.Millisecond {
		t.Errorf("%d differences of 10 items take %v, of 2000 items %v", differences, few, many)
	}
}
