package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lock"
)

// shop stands for a table: without the lock, reading and writing it in two steps sells a unit twice.
type shop struct {
	units int
	sold  map[int]bool
}

// A stock sale: read, judge and write, by one buyer at a time. Where the decision is only "is enough left", one script or
// one conditional update does it without a lock.
func Example_stockSale() {
	locker, end := open()
	defer end()
	s := shop{units: 3, sold: map[int]bool{}}

	buy := func(user int) error {
		return locker.Do(context.Background(), []string{"stock:1001"}, func(context.Context) error {
			if s.units == 0 {
				return errors.New("sold out")
			}
			s.units-- // in SQL, with the lease's fence
			s.sold[user] = true
			return nil
		}, lock.Wait(30*time.Second))
	}
	var wg sync.WaitGroup
	refused := make([]bool, 10)
	for user := range refused {
		wg.Go(func() { refused[user] = buy(user) != nil })
	}
	wg.Wait()
	no := 0
	for _, r := range refused {
		if r {
			no++
		}
	}
	fmt.Println(len(s.sold), "sold,", no, "refused,", s.units, "left")
	// Output: 3 sold, 7 refused, 0 left
}

// A job that every process has in its schedule: whoever gets the lock first looks whether the period is done, and does it.
// The lock alone would not do: a process that comes late finds it free again.
func Example_scheduledJob() {
	locker, end := open()
	defer end()
	done := map[string]bool{} // a table, with the period as its key

	tick := func(day string) (ran bool, err error) {
		lease, ok, err := locker.TryAcquire(context.Background(), []string{"job:report"})
		if err != nil || !ok {
			return false, err // another process is at it
		}
		defer lease.Release(context.Background())
		if done[day] {
			return false, nil
		}
		done[day] = true // after the work, and with it
		return true, nil
	}
	for _, day := range []string{"2030-05-01", "2030-05-02"} {
		runs := 0
		for range 3 { // processes
			ran, err := tick(day)
			if err != nil {
				fmt.Println(err)
			}
			if ran {
				runs++
			}
		}
		fmt.Println(day, "ran", runs, "time")
	}
	// Output:
	// 2030-05-01 ran 1 time
	// 2030-05-02 ran 1 time
}

// An operation that must be done once although it is asked for twice at the same time: the second one waits, and then
// sees that it was done. Package dedup keeps the answer too, and needs no table of its own.
func Example_operationOnce() {
	locker, end := open()
	defer end()
	receipt := "" // the order's row

	charge := func() (answer string, err error) {
		err = locker.Do(context.Background(), []string{"charge:1001"}, func(context.Context) error {
			if receipt == "" {
				receipt = "charged"
				answer = receipt
				return nil
			}
			answer = "was " + receipt + " before"
			return nil
		}, lock.Wait(30*time.Second))
		return answer, err
	}
	answers := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			answer, err := charge()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				answer = err.Error()
			}
			answers[answer]++
		})
	}
	wg.Wait()
	fmt.Println(answers)
	// Output: map[charged:1 was charged before:4]
}

// Workers that compete for tasks: one attempt each, and whoever has a task does it while the others go on to the next.
func Example_workers() {
	locker, end := open()
	defer end()
	var mu sync.Mutex
	done := map[int]int{} // a table of tasks

	work := func(task int) error {
		lease, ok, err := locker.TryAcquire(context.Background(), []string{fmt.Sprintf("task:%d", task)})
		if err != nil || !ok {
			return err // somebody else has it
		}
		defer lease.Release(context.Background())
		mu.Lock()
		defer mu.Unlock()
		if done[task] == 0 { // under the task's lock nobody else can change that
			done[task]++
		}
		return nil
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for task := range 6 {
				if err := work(task); err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	wg.Wait()
	fmt.Println(done)
	// Output: map[0:1 1:1 2:1 3:1 4:1 5:1]
}
