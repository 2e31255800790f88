fn main() {
    let mut args = std::env::args().skip(1);
    let seeds = args.next().unwrap().parse().unwrap();
    for path in args {
        nofrag_lab::probe(&path, seeds);
    }
}
