package bench

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestPermutation(t *testing.T) {
	t.Parallel()
	for _, n := range []uint64{1, 2, 3, 10, 97, 1000, 65536} {
		p, seen := newPermutation(n), map[uint64]bool{}
		for i := range n {
			seen[p.at(i)] = true
		}
		for k := range seen {
			if k >= n {
				t.Fatalf("%d keys: %d", n, k)
			}
		}
		if uint64(len(seen)) != n {
			t.Errorf("%d keys: %d of them met", n, len(seen))
		}
	}
}

// TestZipfShares compares how often the most popular keys come with what the law says: 1/rank^s over the sum of all.
func TestZipfShares(t *testing.T) {
	t.Parallel()
	const n, draws = 1000, 400_000
	for dist, s := range map[Dist]float64{Zipf: zipfExponent, YCSB: ycsbTheta} {
		rng := rand.New(rand.NewPCG(1, 2))
		pick, p := newPicker(dist, n, rng), newPermutation(n)
		counts := map[uint64]float64{}
		for range draws {
			k := pick()
			if k >= n {
				t.Fatalf("%s: key %d of %d", dist, k, n)
			}
			counts[k]++
		}
		sum := 0.0
		for i := 1; i <= n; i++ {
			sum += math.Pow(float64(i), -s)
		}
		for _, rank := range []uint64{0, 1} {
			want, got := math.Pow(float64(rank+1), -s)/sum, counts[p.at(rank)]/draws
			if math.Abs(got-want) > want/20 {
				t.Errorf("%s: rank %d has %.4f of the draws, want %.4f", dist, rank, got, want)
			}
		}
		head := 0.0
		for rank := range uint64(100) {
			head += counts[p.at(rank)] / draws
		}
		want := 0.0
		for i := 1; i <= 100; i++ {
			want += math.Pow(float64(i), -s) / sum
		}
		if math.Abs(head-want) > 0.05 { // the generators are approximations
			t.Errorf("%s: the first hundred have %.3f of the draws, want %.3f", dist, head, want)
		}
	}
}

func TestTinyKeySpaces(t *testing.T) {
	t.Parallel()
	for _, dist := range []Dist{Uniform, Zipf, YCSB, Latest} {
		for _, n := range []uint64{1, 2, 3, 10} {
			pick := newPicker(dist, n, rand.New(rand.NewPCG(3, 4)))
			for range 1000 {
				if k := pick(); k >= n {
					t.Fatalf("%s of %d: key %d", dist, n, k)
				}
			}
		}
	}
}
