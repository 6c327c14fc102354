package server

import (
	"context"
	"net/http"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/destination"
	"github.com/onefold-dev/onefold/internal/gate"
)

// maxDestination bounds the body of a destination.
const maxDestination = 64 << 10

func (s *Server) destinations(ctx context.Context, _ *exchange, _ *none) (*answer, error) {
	all, err := s.listDestinations(ctx)
	if err != nil {
		return nil, err
	}
	return jsonAnswer(http.StatusOK, api.List[api.Destination]{Items: all})
}

func (s *Server) listDestinations(ctx context.Context) ([]api.Destination, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return s.Destinations.List(ctx, s.DB)
}

// named finds a destination by name.
func (s *Server) named(ctx context.Context, name string) (*api.Destination, error) {
	all, err := s.listDestinations(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
	}
	return nil, api.Errorf(api.CodeNotFound, "there is no such destination").
		WithFix("See GET /v1/destinations; one of onefold.yaml is there once a worker that has it started.")
}

func (s *Server) destination(ctx context.Context, _ *exchange, in *gateParams) (*answer, error) {
	d, err := s.named(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return jsonAnswer(http.StatusOK, d)
}

func (s *Server) putDestination(ctx context.Context, x *exchange, in *gateParams) (*answer, error) {
	body, err := x.body(maxDestination, bodyTimeout)
	if err != nil {
		return nil, err
	}
	put, err := s.Destinations.Put(ctx, x.doorAct(in.Name, ""), body)
	if err != nil {
		return nil, err
	}
	d, err := s.named(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	status := http.StatusOK
	if put.Created {
		status = http.StatusCreated
	}
	return jsonAnswer(status, api.DestinationPut{Destination: *d, Created: put.Created, Secret: put.Secret.Reveal()})
}

func (s *Server) deleteDestination(ctx context.Context, x *exchange, in *gateParams) (*answer, error) {
	if err := s.Destinations.Delete(ctx, x.doorAct(in.Name, "")); err != nil {
		return nil, err
	}
	return &answer{status: http.StatusNoContent}, nil
}

func (s *Server) holdDestination(ctx context.Context, x *exchange, in *gateParams) (*answer, error) {
	return s.doorGate(ctx, x, in.Name, s.Gates.Hold)
}

func (s *Server) releaseDestination(ctx context.Context, x *exchange, in *gateParams) (*answer, error) {
	return s.doorGate(ctx, x, in.Name, s.Gates.Release)
}

func (s *Server) doorGate(ctx context.Context, x *exchange, name string, do gateDo) (*answer, error) {
	in, err := x.gateBody()
	if err != nil {
		return nil, err
	}
	if _, err := s.named(ctx, name); err != nil {
		return nil, err
	}
	g, err := do(ctx, gate.Act{Gate: gate.Destination(name), Actor: x.who.Actor(), Reason: in.Reason, RequestID: x.id})
	if err != nil {
		return nil, err
	}
	return jsonAnswer(http.StatusOK, gate.Wire(g, time.Now()))
}

func (s *Server) rotateDestination(ctx context.Context, x *exchange, in *gateParams) (*answer, error) {
	var body api.RotateSecret
	if err := x.strictly(&body, "secret", "overlap", "reason"); err != nil {
		return nil, err
	}
	overlap := destination.DefaultOverlap
	if body.Overlap != "" {
		var err error
		if overlap, err = time.ParseDuration(body.Overlap); err != nil {
			return nil, api.Errorf(api.CodeInvalidField, "overlap is no time").WithField("overlap").WithFix("Write it as 168h, or leave it out.")
		}
	}
	if len(body.Reason) > maxReason {
		return nil, api.Errorf(api.CodeInvalidField, "reason is longer than %d bytes", maxReason).WithField("reason")
	}
	done, err := s.Destinations.Rotate(ctx, x.doorAct(in.Name, body.Reason), body.Secret, overlap)
	if err != nil {
		return nil, err
	}
	return jsonAnswer(http.StatusOK, api.SecretRotated{Destination: in.Name, ID: done.ID, Secret: done.Secret.Reveal(), Overlap: overlap.String()})
}

func (s *Server) testDestination(ctx context.Context, x *exchange, in *gateParams) (*answer, error) {
	var body api.TestDestination
	if err := x.strictly(&body, "to"); err != nil {
		return nil, err
	}
	t, err := s.Destinations.Test(ctx, x.doorAct(in.Name, ""), body.To)
	if err != nil {
		return nil, err
	}
	return jsonAnswer(http.StatusOK, t)
}

func (x *exchange) doorAct(name, reason string) destination.Act {
	return destination.Act{Name: name, Actor: x.who.Actor(), Reason: reason, RequestID: x.id}
}
