// Package fakellm decides what a model server answers in tests, demos and development.
//
// It speaks OpenAI's chat completions and responses and Anthropic's Messages, streamed and not, and counts every call.
// What a call does follows a script (see script.go) from the X-Fakellm-Script header, from a model name that begins with
// "fake:", or from what was set for the model; without one it echoes the last user message. The model "extract" finds
// the fields of an invoice.
//
// Like a real model it finishes what it began when the client has gone: the call counts as completed and orphaned. A
// response with background: true is answered at once and goes on by itself; asking for it is no call.
//
//	POST .../chat/completions   POST .../messages          GET .../models
//	POST .../responses          GET .../responses/ID       POST .../responses/ID/cancel
//	GET  /_fake/calls           the counts                GET  /_fake/log?n=100   the last calls
//	POST /_fake/reset           counts back to zero       POST /_fake/script      {"model": "...", "script": "..."}
package fakellm

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxRequest bounds a request's body.
const maxRequest = 64 << 20

// created is the time that every reply claims, so that equal calls have equal replies.
const created = 1_767_225_600 // 2026-01-01T00:00:00Z

// Handler is a model server as an http.Handler. Close ends the calls that wait.
type Handler struct {
	counts *counts
	jobs   jobs
	done   chan struct{}
	once   sync.Once

	mu      sync.Mutex
	scripts map[string]string // by model; "" is the one for all others
}

// NewHandler makes a Handler that echoes.
func NewHandler() *Handler {
	return &Handler{
		counts: newCounts(), jobs: jobs{byID: map[string]*job{}}, done: make(chan struct{}), scripts: map[string]string{"extract": "extract"},
	}
}

// Script sets the script of a model; the model "" stands for all that have none.
func (h *Handler) Script(model, script string) error {
	for n := 1; n <= 1+strings.Count(script, ";"); n++ {
		if _, err := choose(script, "", n); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.scripts[model] = script
	return nil
}

// Calls returns the counts so far.
func (h *Handler) Calls() Calls { return h.counts.snapshot() }

// Log returns the last n calls, oldest first.
func (h *Handler) Log(n int) []Entry { return h.counts.last(n) }

// Reset sets the counts, and with them the scripts' call numbers, back to zero.
func (h *Handler) Reset() { h.counts.reset() }

// Close ends the calls that wait; later ones do not wait.
func (h *Handler) Close() {
	h.once.Do(func() {
		close(h.done)
		h.jobs.close()
	})
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/chat/completions") && r.Method == http.MethodPost:
		h.answer(w, r, chat{})
	case strings.HasSuffix(path, "/responses") && r.Method == http.MethodPost:
		h.answer(w, r, responses{})
	case strings.HasSuffix(path, "/messages") && r.Method == http.MethodPost:
		h.answer(w, r, messages{})
	case strings.Contains(path, "/responses/") && (r.Method == http.MethodGet || r.Method == http.MethodPost):
		h.poll(w, r)
	case strings.HasSuffix(path, "/models") && r.Method == http.MethodGet:
		writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{
			map[string]any{"id": "fake", "object": "model"}, map[string]any{"id": "extract", "object": "model"},
		}})
	case path == "/_fake/calls":
		writeJSON(w, http.StatusOK, h.Calls())
	case path == "/_fake/log":
		n, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil || n < 1 {
			n = 100
		}
		writeJSON(w, http.StatusOK, h.Log(n))
	case path == "/_fake/reset" && r.Method == http.MethodPost:
		h.Reset()
		w.WriteHeader(http.StatusNoContent)
	case path == "/_fake/script" && r.Method == http.MethodPost:
		h.setScript(w, r)
	case path == "/healthz":
		_, _ = io.WriteString(w, "ok\n")
	default:
		writeError(w, http.StatusNotFound, "not_found", "no such path: "+r.Method+" "+path)
	}
}

func (h *Handler) setScript(w http.ResponseWriter, r *http.Request) {
	var in struct{ Model, Script string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		writeError(w, http.StatusBadRequest, "invalid_request_error", "the body is no JSON object with model and script")
		return
	}
	if err := h.Script(in.Model, in.Script); err != nil {
		writeError(w, http.StatusBadRequest, "invalid_request_error", "script: "+err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// answer answers one call.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, p protocol) {
	refuse := func(message string) {
		writeJSON(w, http.StatusBadRequest, p.refusal(http.StatusBadRequest, "", message))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		refuse("the body could not be read")
		return
	}
	q, err := p.ask(body)
	if err != nil {
		refuse(err.Error())
		return
	}
	e := &Entry{
		At: time.Now(), Model: q.model, Prompt: hash(q.all), Stream: q.stream, Script: h.scriptOf(r, q.model),
		Task: r.Header.Get("Onefold-Task"), Run: r.Header.Get("Onefold-Run"), Attempt: r.Header.Get("Onefold-Attempt"),
	}
	key := e.Task
	if key == "" {
		key = e.Prompt
	}
	nKey, nModel, idle := h.counts.begin(e, e.Script+"\x00"+key)
	w.Header().Set("X-Request-Id", e.RequestID)
	s, err := choose(e.Script, q.all, nKey)
	if err != nil {
		refuse("script: " + err.Error())
		h.counts.end(e, "failed", false, 0)
		return
	}
	if nModel <= s.coldCalls || (s.coldIdle > 0 && idle > s.coldIdle) {
		s.latency += s.cold
	}
	c := &call{h: h, w: w, r: r, p: p, q: q, s: s, id: hash(q.model, q.all), requestID: e.RequestID, text: s.reply(q.last, q.all)}
	if s.stamp {
		c.text += " " + e.RequestID
	}
	h.play(c, e)
}

// play plays a call and counts it out.
func (h *Handler) play(c *call, e *Entry) {
	all := tokens(c.q.all) + tokens(c.text)
	if c.background() {
		doc := h.jobs.begin(c, func(outcome string) { h.counts.end(e, outcome, false, all) })
		c.begin()
		if !c.write(encode(doc)) {
			panic(http.ErrAbortHandler)
		}
		return
	}
	outcome := "cut"
	defer func() { h.counts.end(e, outcome, c.r.Context().Err() != nil, all) }()
	outcome = c.play()
	if outcome == "cut" || outcome == "hung" {
		panic(http.ErrAbortHandler) // closes the connection without ending the body
	}
}

// scriptOf finds the script of a call.
func (h *Handler) scriptOf(r *http.Request, model string) string {
	if s := r.Header.Get("X-Fakellm-Script"); s != "" {
		return s
	}
	if s, ok := strings.CutPrefix(model, "fake:"); ok {
		return s
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, ok := h.scripts[model]; ok {
		return s
	}
	return h.scripts[""]
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func writeError(w http.ResponseWriter, status int, code, message string) {
	writeJSON(w, status, chat{}.refusal(status, code, message))
}
