// Package renew runs what is due at some instant for many leases and claims with one goroutine and one timer.
//
// A lease that is renewed every ten seconds and usually lives for ten milliseconds should cost nothing for its renewal.
// So an entry that is added and removed before its time touches the timer only if it is due before everything else:
// no goroutine, no timer, no command. The timer may then fire for an entry that is gone, which is all that is left of it.
//
// The tasks run one after the other on the scheduler's goroutine and must not block: a server that hangs must not
// delay the deadline of another lease. What has to wait for a reply is started on a goroutine of its own.
package renew
