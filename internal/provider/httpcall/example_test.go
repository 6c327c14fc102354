package httpcall_test

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/httpcall"
)

// TestExampleKeepsTheContract runs the service of examples/httpcall and asks it all that the contract has.
func TestExampleKeepsTheContract(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not there")
	}
	cmd := exec.CommandContext(t.Context(), python, "../../../examples/httpcall/service.py", "0")
	secret := "whsec_c2VjcmV0IG9mIHRoZSB0ZXN0"
	cmd.Env = append(cmd.Environ(), "WORK_SECRET="+secret)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	service := func(secret string) *httpcall.Asked {
		p, err := httpcall.New(httpcall.Opts{
			BaseURL: strings.TrimSpace(line), Status: "status", AllowPrivate: true, Secrets: func() []string { return []string{secret} },
		})
		if err != nil {
			t.Fatal(err)
		}
		return p.(*httpcall.Asked)
	}
	s := service(secret)
	defer s.Close()
	r := provider.Request{TaskID: "t-1", Run: 1, Attempt: 1, Number: 3, Body: []byte(`{"a":1}`)}
	if st := s.Status(t.Context(), r); st.Known != provider.NotDone {
		t.Errorf("before: %+v", st)
	}
	if _, err := s.Call(t.Context(), r); provider.AsError(err).Class != provider.Refused {
		t.Errorf("a try that was promised not to be done: %v", err)
	}
	r.Number++
	for range 2 {
		resp, err := s.Call(t.Context(), r)
		if err != nil || string(resp.Reply) != `{"length": 8}` {
			t.Errorf("got %+v, %v", resp, err)
		}
	}
	if st := s.Status(t.Context(), r); st.Known != provider.Done || string(st.Response.Reply) != `{"length": 8}` {
		t.Errorf("after: %+v", st)
	}
	wrong := service("whsec_b3RoZXI=")
	defer wrong.Close()
	if _, err := wrong.Call(t.Context(), r); provider.AsError(err).Class != provider.Unauthorized {
		t.Errorf("signed by another secret: %v", err)
	}
}
