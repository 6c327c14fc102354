package fakellm

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxJobs is how many background jobs are remembered; the oldest are forgotten, as a provider does after a while.
const maxJobs = 20_000

// jobs are the responses that are made in the background.
type jobs struct {
	mu    sync.Mutex
	byID  map[string]*job
	order []string
	made  int
	over  bool
}

// job is one of them. It goes on whoever asks for it, and whether anyone does.
type job struct {
	c     *call
	doc   map[string]any // as it is told now
	ended bool
	timer *time.Timer
	end   func(outcome string) // counts it out
}

// begin starts the job of a call and names it. A script that hangs or stalls makes one that never ends by itself.
func (j *jobs) begin(c *call, end func(outcome string)) map[string]any {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.made++
	c.id = "bg" + c.id + "_" + strconv.Itoa(j.made)
	b := &job{c: c, doc: responses{}.shell(c, "queued"), end: end}
	id := "resp_" + c.id
	j.byID[id] = b
	if j.order = append(j.order, id); len(j.order) > maxJobs {
		delete(j.byID, j.order[0])
		j.order = j.order[1:]
	}
	switch {
	case j.over:
	case c.s.stall > 0:
		b.doc["status"] = "in_progress"
	default:
		b.timer = time.AfterFunc(c.takes(), func() { j.finish(b) })
	}
	return b.doc
}

// finish brings a job to its scripted end.
func (j *jobs) finish(b *job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if b.ended {
		return
	}
	b.ended = true
	if b.c.s.fail != "" {
		b.doc = responses{}.failed(b.c, b.c.s.fail)
		b.end("failed")
		return
	}
	b.doc = responses{}.document(b.c)
	b.end("completed")
}

// EndJobs brings every background job that runs to its end now, the ones that stall included.
func (h *Handler) EndJobs() {
	h.jobs.mu.Lock()
	var run []*job
	for _, b := range h.jobs.byID {
		if !b.ended {
			run = append(run, b)
		}
	}
	h.jobs.mu.Unlock()
	for _, b := range run {
		h.jobs.finish(b)
	}
}

// read is a job as it stands, and whether it is known.
func (j *jobs) read(id string, cancel bool) (doc map[string]any, requestID string, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	b := j.byID[id]
	if b == nil {
		return nil, "", false
	}
	if cancel && !b.ended {
		b.ended = true
		if b.timer != nil {
			b.timer.Stop()
		}
		b.doc = responses{}.shell(b.c, "cancelled")
		b.end("cut")
	}
	return b.doc, b.c.requestID, true
}

// close ends the timers; what runs then never ends.
func (j *jobs) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.over = true
	for _, b := range j.byID {
		if b.timer != nil {
			b.timer.Stop()
		}
	}
}

// poll answers GET .../responses/ID and POST .../responses/ID/cancel.
func (h *Handler) poll(w http.ResponseWriter, r *http.Request) {
	_, id, _ := strings.Cut(r.URL.Path, "/responses/")
	id, cancel := strings.CutSuffix(id, "/cancel")
	if cancel != (r.Method == http.MethodPost) {
		writeError(w, http.StatusMethodNotAllowed, "invalid_request_error", "a response is read with GET, and cancelled with POST "+id+"/cancel")
		return
	}
	h.counts.polled()
	doc, requestID, ok := h.jobs.read(id, cancel)
	if !ok {
		writeError(w, http.StatusNotFound, "not_found", "there is no response "+id)
		return
	}
	w.Header().Set("X-Request-Id", requestID)
	writeJSON(w, http.StatusOK, doc)
}
