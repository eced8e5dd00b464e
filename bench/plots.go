package bench

import (
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// picture is one plot of the report, drawn as NAME.png and NAME.svg.
type picture struct {
	name, title string
	bars        int // of each side
	draw        func(p *plot.Plot) error
}

const (
	pictureWidth  = 18 * vg.Centimeter
	pictureHeight = 11 * vg.Centimeter
	barWidth      = 8                   // points
	barRoom       = 1.2 * vg.Centimeter // for both bars of a row
	headroom      = 1.2                 // above the highest bar, for the legend
)

// sideColors tell the sides apart, also for those who see red and green alike.
func sideColors() [2]color.RGBA {
	return [2]color.RGBA{{0, 114, 178, 255}, {230, 159, 0, 255}}
}

func sideNames() [2]string { return [2]string{ours, "other"} }

// plots are the pictures that there are figures for.
func (rep *Report) plots() (all []picture) {
	for _, g := range groupHelp() {
		rows := rep.rowsWith(func(r *RowResult) bool { return r.Row.Group == g[0] && r.Row.Share == 0 && len(r.Runs) > 0 })
		if len(rows) == 0 {
			continue
		}
		add := func(name, title, unit string, of func(Median) float64) {
			all = append(all, picture{name + "-" + g[0], title + ", " + g[0], len(rows), bars(rows, unit, of)})
		}
		add("throughput", "operations per second", "1000/s", func(m Median) float64 { return m.Rate / 1000 })
		add("cpu", "processor time of the server", "us/op", func(m Median) float64 { return m.ServerMicros })
		add("memory", "peak memory of the server", "MB", func(m Median) float64 { return m.PeakBytes / (1 << 20) })
		add("disk", "data folder after the run", "MB", func(m Median) float64 { return m.DiskBytes / (1 << 20) })
	}
	curved := rep.rowsWith(func(r *RowResult) bool { return len(r.Runs) > 0 && len(r.Runs[0].Curve) > 0 })
	for _, r := range curved {
		all = append(all, picture{"latency-" + r.Row.Name, "latency, " + r.Row.Name, 0, latencyCurves(r)})
	}
	for _, work := range []string{"get", "set"} {
		open := rep.rowsWith(func(r *RowResult) bool {
			return r.Row.Share > 0 && r.Row.Work == work && r.Row.Longer == 0 && len(r.Runs) > 1
		})
		if len(open) > 1 {
			all = append(all, picture{"load-" + work, "latency over load, " + strings.ToUpper(work), 0, overLoad(open)})
		}
	}
	return all
}

func (rep *Report) rowsWith(ok func(*RowResult) bool) (rows []*RowResult) {
	for _, r := range rep.Rows {
		if ok(r) {
			rows = append(rows, r)
		}
	}
	return rows
}

// bars draws both sides beside each other for each row.
func bars(rows []*RowResult, unit string, of func(Median) float64) func(*plot.Plot) error {
	return func(p *plot.Plot) error {
		p.Y.Label.Text, p.Y.Min = unit, 0
		var names []string
		for _, r := range rows {
			names = append(names, r.Row.Name)
		}
		for side, name := range sideNames() {
			values := make(plotter.Values, len(rows))
			for i, r := range rows {
				values[i] = of(r.Sides[side])
			}
			chart, err := plotter.NewBarChart(values, vg.Points(barWidth))
			if err != nil {
				return err
			}
			chart.Color, chart.LineStyle.Width = sideColors()[side], 0
			chart.Offset = vg.Points(barWidth * (float64(side) - 0.5))
			p.Add(chart)
			p.Legend.Add(name, chart)
		}
		p.NominalX(names...)
		p.X.Min, p.X.Max = -0.5, float64(len(rows))-0.5
		p.Y.Max *= headroom
		p.X.Tick.Label.Rotation = math.Pi / 3
		p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = -1, -0.5
		return nil
	}
}

// latencyCurves draws latency over how many operations were slower, in tenths: 90 %, 99 %, 99.9 %.
func latencyCurves(r *RowResult) func(*plot.Plot) error {
	return func(p *plot.Plot) error {
		p.X.Label.Text, p.Y.Label.Text = "percent of operations", "ms"
		var ticks []plot.Tick
		labels := []string{"0", "90", "99", "99.9", "99.99", "99.999"}
		p.X.Min, p.X.Max = 0, float64(len(labels))-0.5
		for nines, label := range labels {
			ticks = append(ticks, plot.Tick{Value: float64(nines), Label: label})
		}
		p.X.Tick.Marker = plot.ConstantTicks(ticks)
		for side, name := range sideNames() {
			if err := line(p, name, side, 0, middleCurve(r.Runs, side)); err != nil {
				return err
			}
		}
		logarithmic(p)
		return nil
	}
}

// middleCurve is the median of the runs' curves, point by point.
func middleCurve(runs []*Run, side int) (points plotter.XYs) {
	for i, percent := range curvePercents() {
		var values []float64
		for _, run := range runs {
			if run.Side == side && i < len(run.Curve) {
				values = append(values, run.Curve[i].Ms)
			}
		}
		if v := median(values); v > 0 && percent < 100 {
			points = append(points, plotter.XY{X: -math.Log10(1 - percent/100), Y: v})
		}
	}
	return points
}

// overLoad draws median and tails of open loops over the offered rate.
func overLoad(rows []*RowResult) func(*plot.Plot) error {
	return func(p *plot.Plot) error {
		p.X.Label.Text, p.Y.Label.Text = "offered, 1000/s", "ms"
		kinds := []struct {
			name string
			of   func(Median) float64
		}{
			{"p50", func(m Median) float64 { return m.P50Ms }},
			{"p99", func(m Median) float64 { return m.P99Ms }},
			{"p99.9", func(m Median) float64 { return m.P999Ms }},
		}
		for side, name := range sideNames() {
			for dashes, k := range kinds {
				var points plotter.XYs
				for _, r := range rows {
					if v := k.of(r.Sides[side]); v > 0 {
						points = append(points, plotter.XY{X: r.Runs[0].Offered / 1000, Y: v})
					}
				}
				if err := line(p, name+" "+k.name, side, dashes, points); err != nil {
					return err
				}
			}
		}
		logarithmic(p)
		return nil
	}
}

// logarithmic makes the vertical axis so, once all lines are there. A plot without lines, or with one at zero, stays linear: the
// library panics otherwise.
func logarithmic(p *plot.Plot) {
	if p.Y.Min <= 0 || math.IsInf(p.Y.Min, 0) || math.IsInf(p.Y.Max, 0) {
		return
	}
	p.Y.Max *= 10 // room for the legend
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
}

// line adds one in a side's color, the more dashed the higher the number.
func line(p *plot.Plot, name string, side, dashes int, points plotter.XYs) error {
	if len(points) == 0 {
		return nil
	}
	l, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	l.Color, l.Width = sideColors()[side], vg.Points(1.5)
	if dashes > 0 {
		l.Dashes = []vg.Length{vg.Points(9 / float64(dashes)), vg.Points(3)}
	}
	p.Add(l)
	p.Legend.Add(name, l)
	return nil
}

// draw writes all pictures.
func (rep *Report) draw(dir string) error {
	for _, one := range rep.plots() {
		p := plot.New()
		p.Title.Text = one.title
		p.Legend.Top, p.Legend.Left = true, true
		p.Add(plotter.NewGrid())
		if err := one.draw(p); err != nil {
			return fmt.Errorf("picture %s: %w", one.name, err)
		}
		width := max(pictureWidth, barRoom*vg.Length(1+one.bars))
		for _, kind := range []string{".png", ".svg"} {
			if err := p.Save(width, pictureHeight, filepath.Join(dir, one.name+kind)); err != nil {
				return fmt.Errorf("picture %s: %w", one.name, err)
			}
		}
	}
	return nil
}
