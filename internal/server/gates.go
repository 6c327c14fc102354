package server

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submission"
	"github.com/onefold-dev/onefold/internal/task"
)

// maxGateBody bounds the body of a hold or release, in bytes.
const maxGateBody = 16 << 10

// strictly reads a small body into v: no name twice, none that v has no field for.
func (x *exchange) strictly(v any, names ...string) error {
	body, err := x.body(maxGateBody, bodyTimeout)
	if err != nil {
		return err
	}
	members, err := canon.Members(body)
	if err != nil {
		return submission.CanonError(err)
	}
	for _, m := range members {
		if !slices.Contains(names, m.Name) {
			return api.Errorf(api.CodeUnknownField, "the body has a field that does not exist").WithField(printable(m.Name)).
				WithFix("Remove it. The fields are %s.", strings.Join(names, ", "))
		}
	}
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(v); err != nil {
		return api.Errorf(api.CodeInvalidField, "a field has a value of the wrong type").WithFix("Send texts; stops is a list of texts.")
	}
	return nil
}

func (s *Server) holds(ctx context.Context, x *exchange, _ *none) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rows, err := store.Holds(ctx, s.DB, x.who.Tenant)
	if err != nil {
		return nil, err
	}
	all := api.List[api.Hold]{Items: []api.Hold{}}
	for _, h := range rows {
		all.Items = append(all.Items, gate.WireHold(h))
	}
	return jsonAnswer(http.StatusOK, all)
}

// hold sets a hold. A tenant's key holds what is its tenant's, and nothing else.
func (s *Server) hold(ctx context.Context, x *exchange, _ *none) (*answer, error) {
	var in api.NewHold
	if err := x.strictly(&in, "tenant", "kind", "provider", "destination", "stops", "reason"); err != nil {
		return nil, err
	}
	switch {
	case x.who.Tenant != "" && in.Tenant != "" && in.Tenant != x.who.Tenant:
		return nil, api.Errorf(api.CodeForbidden, "this key may hold its own tenant only").WithField("tenant").WithFix("Leave tenant out, or use an instance key.")
	case x.who.Tenant != "":
		in.Tenant = x.who.Tenant
	}
	for _, stop := range in.Stops {
		if !slices.Contains(api.Stops, stop) {
			return nil, api.Errorf(api.CodeInvalidField, "stops names something that cannot be stopped").WithField("stops").
				WithFix("Use submits, claims or retries.")
		}
	}
	if len(in.Reason) > maxReason {
		return nil, api.Errorf(api.CodeInvalidField, "reason is longer than %d bytes", maxReason).WithField("reason")
	}
	h, err := s.Gates.SetHold(ctx, store.Hold{
		Tenant: in.Tenant, Kind: in.Kind, Provider: in.Provider, Destination: in.Destination, Stops: in.Stops, Reason: in.Reason, Actor: x.who.Actor(),
	})
	if err != nil {
		return nil, err
	}
	x.line.Add(slog.String("hold", h.ID.String()))
	return jsonAnswer(http.StatusCreated, gate.WireHold(*h))
}

type holdParams struct {
	ID     string `path:"id" doc:"The hold's id."`
	Reason string `query:"reason" maxLength:"1000" doc:"Why, for the audit."`
}

func (s *Server) takeHold(ctx context.Context, x *exchange, in *holdParams) (*answer, error) {
	id, err := task.ParseID(in.ID)
	if err != nil {
		return nil, api.Errorf(api.CodeNotFound, "there is no such hold")
	}
	h, err := s.Gates.TakeHold(ctx, x.who.Tenant, id, x.who.Actor(), in.Reason)
	if err != nil {
		return nil, err
	}
	return jsonAnswer(http.StatusOK, gate.WireHold(*h))
}

func (s *Server) providers(ctx context.Context, _ *exchange, _ *none) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	all, err := gate.Providers(ctx, s.DB)
	if err != nil {
		return nil, err
	}
	return jsonAnswer(http.StatusOK, api.List[api.Provider]{Items: all})
}

type gateParams struct {
	Name string `path:"name" maxLength:"100" doc:"The name in onefold.yaml."`
}

func (s *Server) holdProvider(ctx context.Context, x *exchange, in *gateParams) (*answer, error) {
	return s.gateAct(ctx, x, in.Name, s.Gates.Hold)
}

func (s *Server) releaseProvider(ctx context.Context, x *exchange, in *gateParams) (*answer, error) {
	return s.gateAct(ctx, x, in.Name, s.Gates.Release)
}

// gateDo is what is done to a gate.
type gateDo func(context.Context, gate.Act) (store.Gate, error)

func (x *exchange) gateBody() (in api.GateAct, err error) {
	if err := x.strictly(&in, "reason"); err != nil {
		return in, err
	}
	if len(in.Reason) > maxReason {
		return in, api.Errorf(api.CodeInvalidField, "reason is longer than %d bytes", maxReason).WithField("reason")
	}
	return in, nil
}

func (s *Server) gateAct(ctx context.Context, x *exchange, name string, do gateDo) (*answer, error) {
	in, err := x.gateBody()
	if err != nil {
		return nil, err
	}
	all, err := gate.Providers(ctx, s.DB)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(all, func(p api.Provider) bool { return p.Name == name }) {
		return nil, api.Errorf(api.CodeNotFound, "there is no such provider").WithFix("See GET /v1/providers; one is there once a worker that has it started.")
	}
	g, err := do(ctx, gate.Act{Gate: gate.Provider(name), Actor: x.who.Actor(), Reason: in.Reason, RequestID: x.id})
	if err != nil {
		return nil, err
	}
	return jsonAnswer(http.StatusOK, gate.Wire(g, time.Now()))
}
