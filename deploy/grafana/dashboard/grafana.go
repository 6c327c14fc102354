package main

// What Grafana calls things. Only what is set here is written, so that a newer
// Grafana's defaults hold for the rest.
type (
	object map[string]any

	dashboard struct {
		UID           string   `json:"uid"`
		Title         string   `json:"title"`
		Description   string   `json:"description"`
		Tags          []string `json:"tags"`
		Editable      bool     `json:"editable"`
		GraphTooltip  int      `json:"graphTooltip"`
		Refresh       string   `json:"refresh"`
		SchemaVersion int      `json:"schemaVersion"`
		Version       int      `json:"version"`
		Time          object   `json:"time"`
		Templating    object   `json:"templating"`
		Annotations   object   `json:"annotations"`
		Links         []object `json:"links"`
		Panels        []drawn  `json:"panels"`
	}

	drawn struct {
		ID          int      `json:"id"`
		Type        string   `json:"type"`
		Title       string   `json:"title"`
		Description string   `json:"description,omitempty"`
		GridPos     grid     `json:"gridPos"`
		Collapsed   *bool    `json:"collapsed,omitempty"`
		Panels      *[]drawn `json:"panels,omitempty"`
		Datasource  object   `json:"datasource,omitempty"`
		FieldConfig object   `json:"fieldConfig,omitempty"`
		Options     object   `json:"options,omitempty"`
		Targets     []object `json:"targets,omitempty"`
	}

	grid struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
)

// datasource is the variable that the reader chooses a Prometheus by.
var datasource = object{"type": "prometheus", "uid": "${datasource}"}

// draw places the rows below each other and the panels from left to right.
func draw(rows []row) dashboard {
	d := dashboard{
		UID: "onefold", Title: "onefold", Tags: []string{"onefold"}, Refresh: "30s", SchemaVersion: 39, Version: 1, GraphTooltip: 1,
		Description: "Is it working, is anything unknown, what waits for a person? What each alert asks for stands in docs/playbooks.",
		Time:        object{"from": "now-3h", "to": "now"},
		Templating:  object{"list": variables()},
		Annotations: object{"list": []object{{
			"name": "alerts", "enable": true, "datasource": datasource, "iconColor": "red",
			"expr": `ALERTS{alertname=~"Onefold.*", alertstate="firing"}`, "titleFormat": "{{alertname}}", "textFormat": "{{kind}} {{scope}} {{name}} {{destination}}",
		}}},
		Links: []object{},
	}
	id, y := 0, 0
	for _, r := range rows {
		id++
		d.Panels = append(d.Panels, heading(id, y, r.title))
		y++
		x, high := 0, 0
		for _, p := range r.panels {
			w, h := p.size()
			if x+w > 24 {
				x, y, high = 0, y+high, 0
			}
			id++
			d.Panels = append(d.Panels, p.draw(id, grid{H: h, W: w, X: x, Y: y}))
			x, high = x+w, max(high, h)
		}
		y += high
	}
	return d
}

func heading(id, y int, title string) drawn {
	open := false
	return drawn{ID: id, Type: "row", Title: title, GridPos: grid{H: 1, W: 24, Y: y}, Collapsed: &open, Panels: &[]drawn{}}
}

func (p panel) draw(id int, at grid) drawn {
	d := drawn{
		ID: id, Type: string(p.shape), Title: p.title, Description: p.why, GridPos: at, Datasource: datasource,
		FieldConfig: object{"defaults": p.defaults(), "overrides": []object{}}, Options: p.options(),
	}
	for i, q := range p.queries {
		t := object{"refId": string(rune('A' + i)), "expr": q.expr, "legendFormat": q.legend, "datasource": datasource, "editorMode": "code", "range": p.shape == lines, "instant": p.shape != lines}
		if p.shape == list {
			t["format"] = "table"
		}
		d.Targets = append(d.Targets, t)
	}
	return d
}

// defaults are the unit and the colours of a panel's values.
func (p panel) defaults() object {
	steps := []object{{"color": "green", "value": nil}}
	if p.below {
		steps = []object{{"color": "red", "value": nil}, {"color": "green", "value": p.bad}}
	} else {
		if p.warn > 0 {
			steps = append(steps, object{"color": "yellow", "value": p.warn})
		}
		if p.bad > 0 {
			steps = append(steps, object{"color": "red", "value": p.bad})
		}
	}
	d := object{"unit": p.unit, "min": 0, "thresholds": object{"mode": "absolute", "steps": steps}, "color": object{"mode": "thresholds"}}
	if p.shape == lines {
		d["color"] = object{"mode": "palette-classic"}
		d["custom"] = object{"fillOpacity": 8, "lineWidth": 1, "showPoints": "never", "thresholdsStyle": object{"mode": map[bool]string{true: "dashed", false: "off"}[len(steps) > 1]}}
	}
	return d
}

func (p panel) options() object {
	switch p.shape {
	case number:
		return object{
			"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "background", "graphMode": "area", "textMode": "auto", "orientation": "auto", "justifyMode": "auto", "wideLayout": true, "showPercentChange": false, "percentChangeColorMode": "standard",
		}
	case list:
		return object{"showHeader": true, "frameIndex": 0, "cellHeight": "sm"}
	default:
		return object{"legend": object{"displayMode": "table", "placement": "bottom", "calcs": []string{"lastNotNull", "max"}, "showLegend": true}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	}
}

// variables are what the reader chooses by.
func variables() []object {
	out := []object{{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}}
	for _, v := range [][2]string{{"kind", "onefold_submits_total"}, {"provider", "onefold_attempts_total"}, {"destination", "onefold_deliveries_total"}} {
		query := "label_values(" + v[1] + ", " + v[0] + ")"
		out = append(out, object{
			"name": v[0], "label": v[0], "type": "query", "datasource": datasource, "definition": query, "query": object{"query": query, "refId": v[0]},
			"refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"},
		})
	}
	return out
}
