package task

//go:generate go test . -run TestStatesDoc -update

import (
	"slices"

	"github.com/onefold-dev/onefold/api"
)

// Moves is the table of legal moves of a task; the SQL guards by it, and the
// picture in docs/states.md is drawn from it.
var Moves = map[api.State][]api.State{
	api.Pending:   {api.Running, api.Cancelled, api.Failed, api.Unknown},
	api.Running:   {api.Succeeded, api.Failed, api.Unknown, api.Cancelled, api.Pending},
	api.Unknown:   {api.Succeeded, api.Failed, api.Cancelled, api.Pending},
	api.Failed:    {api.Pending},
	api.Succeeded: {},
	api.Cancelled: {},
}

// EffectMoves is the table of legal moves of an effect.
var EffectMoves = map[api.EffectState][]api.EffectState{
	api.EffectWaiting:    {api.EffectDelivering, api.EffectHeld, api.EffectDiscarded},
	api.EffectDelivering: {api.EffectDelivered, api.EffectWaiting, api.EffectUnknown, api.EffectDead, api.EffectHeld},
	api.EffectHeld:       {api.EffectWaiting, api.EffectDiscarded},
	api.EffectUnknown:    {api.EffectWaiting, api.EffectDelivered, api.EffectDiscarded},
	api.EffectDead:       {api.EffectWaiting, api.EffectDiscarded},
	api.EffectDelivered:  {},
	api.EffectDiscarded:  {},
}

// Legal says whether a task may move from one state to another.
func Legal(from, to api.State) bool { return slices.Contains(Moves[from], to) }
