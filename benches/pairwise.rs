//! The time that pairwise covering arrays take.

use matrix::plan::pairwise::pairwise;

fn main() {
    divan::main();
}

#[divan::bench(args = [(10, 4), (20, 5), (10, 10), (50, 4)], sample_count = 20)]
fn equal_axes(bencher: divan::Bencher, (axes, values): (usize, usize)) {
    let sizes = vec![values; axes];
    bencher.bench_local(|| pairwise(divan::black_box(&sizes), &[], 1));
}
