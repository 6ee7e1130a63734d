package daemon

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

const (
	// maxReading is how many connections may be without a whole request. Callers
	// send it at once, so one more ends that which has taken longest: those who
	// write slowly, or nothing, keep no other caller from being read.
	maxReading = 128
	// maxLong is how many requests longer than shortLine are read at a time.
	maxLong   = 8
	shortLine = 64 << 10
	// maxCalls is how many calls of one driver may be under way, several for each
	// volume of a node. A CSI driver that hangs cannot take more than that.
	maxCalls = 512
	// maxQuestions is the same for questions, which have longer answers.
	maxQuestions = 32
	// maxComplaints is how many lines about connections that were no calls go to
	// the log in complaintTime: other users may connect as often as they like.
	maxComplaints = 10
	complaintTime = 10 * time.Second
)

// limits are those of one server. The zero value is ready.
type limits struct {
	mu         sync.Mutex
	reading    []net.Conn // oldest first
	calls      map[string]int
	complaints []time.Time
	suppressed int

	once sync.Once
	long chan struct{}
}

// read notes that a connection is being read, until done is called.
func (l *limits) read(conn net.Conn) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.reading) >= maxReading {
		_ = l.reading[0].Close()
		l.reading = slices.Delete(l.reading, 0, 1)
	}
	l.reading = append(l.reading, conn)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if i := slices.Index(l.reading, conn); i >= 0 {
			l.reading = slices.Delete(l.reading, i, i+1)
		}
	}
}

// readLong waits until a long request may be read, and notes that until done is
// called. Those before it have no more time than others to send theirs.
func (l *limits) readLong() (done func()) {
	l.once.Do(func() { l.long = make(chan struct{}, maxLong) })
	l.long <- struct{}{}
	return func() { <-l.long }
}

// begin notes a call of a driver, or a question if that is empty, until done is
// called. Too many are an error.
func (l *limits) begin(driver string) (done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	most := maxCalls
	if driver == "" {
		most = maxQuestions
	}
	if l.calls[driver] >= most {
		return nil, flex.Errorf(flex.CodeUnavailable, "%d calls of this driver are under way already: does the CSI driver answer? The call is tried again", most)
	}
	if l.calls == nil {
		l.calls = map[string]int{}
	}
	l.calls[driver]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.calls[driver]--; l.calls[driver] == 0 {
			delete(l.calls, driver)
		}
	}, nil
}

// complain reports whether there may be another line in the log, and how many
// there were not since the last one.
func (l *limits) complain(now time.Time) (ok bool, suppressed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.complaints = slices.DeleteFunc(l.complaints, func(at time.Time) bool { return now.Sub(at) > complaintTime })
	if len(l.complaints) >= maxComplaints {
		l.suppressed++
		return false, 0
	}
	l.complaints = append(l.complaints, now)
	suppressed, l.suppressed = l.suppressed, 0
	return true, suppressed
}
