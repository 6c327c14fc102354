package api

// Keyed is a submit that names its key itself: an item of a bulk, and a line of
// a batch. Empty only for kinds whose dedupe is none.
type Keyed struct {
	Key string `json:"key,omitempty"`
	Submit
}

// Append adds k to dst as JSON, with Input, Effects and Metadata exactly as they
// are; see Submit.Append.
func (k *Keyed) Append(dst []byte) ([]byte, error) {
	dst, err := k.Submit.Append(dst)
	if err != nil || k.Key == "" {
		return dst, err
	}
	key, err := appendObject(nil, k.Key)
	if err != nil {
		return nil, err
	}
	return appendMember(dst, "key", key), nil
}

// Bulk is the body of POST /v1/tasks/bulk.
type Bulk struct {
	Tasks []Keyed `json:"tasks"`
}

// MaxBulk is how many tasks one bulk may hold.
const MaxBulk = 1000

// BulkItem is the answer to one task of a bulk: what a submit of it alone would
// have been answered with.
type BulkItem struct {
	Status int    `json:"status"`
	Task   *Task  `json:"task,omitempty"`
	Error  *Error `json:"error,omitempty"`
	// RetryAfter is, in seconds, after what time to send a refused one again; 0 where no time was named.
	RetryAfter int `json:"retry_after,omitempty"`
}

// Append adds b to dst as JSON, with the task's result exactly as it is.
func (b *BulkItem) Append(dst []byte) ([]byte, error) {
	bare := *b
	bare.Task = nil
	dst, err := appendObject(dst, &bare)
	if err != nil || b.Task == nil {
		return dst, err
	}
	t, err := b.Task.Append(nil)
	if err != nil {
		return nil, err
	}
	return appendMember(dst, "task", t), nil
}

// BulkAnswer is the answer to a bulk, one item for each task in their order.
type BulkAnswer struct {
	Items []BulkItem `json:"items"`
}

// WaitAny is the body of POST /v1/tasks/wait.
type WaitAny struct {
	IDs []string `json:"ids"`
}

// MaxWaitAny is how many tasks one request can wait for.
const MaxWaitAny = 1000

// Settled is the answer to a WaitAny: the task that settled first, or none.
type Settled struct {
	Task *Task `json:"task,omitempty"`
}
