// Package fakellm decides what a model server answers in tests, demos and development.
//
// It speaks OpenAI's chat completions, streamed and not, and counts every call. What a call does follows a script (see
// script.go) from the X-Fakellm-Script header, from a model name that begins with "fake:", or from what was set for
// the model; without one it echoes the last user message. The model "extract" finds the fields of an invoice.
//
// Like a real model it finishes what it began when the client has gone: the call counts as completed and orphaned.
//
//	POST .../chat/completions   GET .../models
//	GET  /_fake/calls           the counts                GET  /_fake/log?n=100   the last calls
//	POST /_fake/reset           counts back to zero       POST /_fake/script      {"model": "...", "script": "..."}
package fakellm

import (
	"encoding/json"
	"fmt"
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
	done   chan struct{}
	once   sync.Once

	mu      sync.Mutex
	scripts map[string]string // by model; "" is the one for all others
}

// NewHandler makes a Handler that echoes.
func NewHandler() *Handler {
	return &Handler{counts: newCounts(), done: make(chan struct{}), scripts: map[string]string{"extract": "extract"}}
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
func (h *Handler) Close() { h.once.Do(func() { close(h.done) }) }

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/chat/completions") && r.Method == http.MethodPost:
		h.chat(w, r)
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

// request is what of a chat completions request matters here.
type request struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// prompt is the text of all messages; last that of the last user message.
func (q request) prompt() (all, last string) {
	var b strings.Builder
	for _, m := range q.Messages {
		var text string
		if json.Unmarshal(m.Content, &text) != nil {
			var parts []struct{ Text string }
			_ = json.Unmarshal(m.Content, &parts)
			for _, p := range parts {
				text += p.Text
			}
		}
		b.WriteString(m.Role + "\n" + text + "\n")
		if m.Role == "user" {
			last = text
		}
	}
	return b.String(), last
}

func (h *Handler) chat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		writeError(w, http.StatusBadRequest, "invalid_request_error", "the body could not be read")
		return
	}
	var q request
	if err := json.Unmarshal(body, &q); err != nil || q.Model == "" || len(q.Messages) == 0 {
		writeError(w, http.StatusBadRequest, "invalid_request_error", "the body needs a model and messages")
		return
	}
	all, last := q.prompt()
	e := &Entry{
		At: time.Now(), Model: q.Model, Prompt: hash(all), Stream: q.Stream, Script: h.scriptOf(r, q.Model),
		Task: r.Header.Get("Onefold-Task"), Run: r.Header.Get("Onefold-Run"), Attempt: r.Header.Get("Onefold-Attempt"),
	}
	key := e.Task
	if key == "" {
		key = e.Prompt
	}
	nKey, nModel, idle := h.counts.begin(e, e.Script+"\x00"+key)
	e.RequestID = fmt.Sprintf("req-%06d", e.N)
	w.Header().Set("X-Request-Id", e.RequestID)
	s, err := choose(e.Script, all, nKey)
	if err != nil {
		writeError(w, http.StatusBadRequest, "invalid_request_error", "script: "+err.Error())
		h.counts.end(e, "failed", false, 0)
		return
	}
	if nModel <= s.coldCalls || (s.coldIdle > 0 && idle > s.coldIdle) {
		s.latency += s.cold
	}
	c := &call{h: h, w: w, r: r, q: q, s: s, id: "chatcmpl-" + hash(q.Model, all), prompt: all, text: s.reply(last, all)}
	if s.stamp {
		c.text += " " + e.RequestID
	}
	outcome := "cut"
	defer func() { h.counts.end(e, outcome, r.Context().Err() != nil, tokens(all)+tokens(c.text)) }()
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
	writeJSON(w, status, map[string]any{"error": map[string]any{"message": message, "type": code, "code": code, "param": nil}})
}
