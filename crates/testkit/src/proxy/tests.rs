use super::*;
use crate::raw::socket_of;
use crate::stays;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Makes a connection through a proxy; returns the dialler, the acceptor, the proxy and the wire.
async fn pair(conducts: Conducts) -> (TcpStream, TcpStream, Proxy, Arc<Wire>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).unwrap();
    proxy.arm_next([conducts]);
    let dialler = TcpStream::connect(socket_of(&proxy.address)).await.unwrap();
    let (acceptor, _) = listener.accept().await.unwrap();
    let wire = proxy.newest().unwrap();
    (dialler, acceptor, proxy, wire)
}

async fn read_all(stream: &mut TcpStream) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let ended = stream.read_to_end(&mut bytes).await.is_ok();
    (bytes, ended)
}

#[tokio::test]
async fn bytes_pass_both_ways_and_so_does_their_end() {
    let (mut dialler, mut acceptor, _proxy, wire) = pair(Conducts::default()).await;
    dialler.write_all(b"forth").await.unwrap();
    dialler.shutdown().await.unwrap();
    assert_eq!(read_all(&mut acceptor).await, (b"forth".to_vec(), true));
    // The other direction is still open.
    acceptor.write_all(b"back again").await.unwrap();
    drop(acceptor);
    assert_eq!(read_all(&mut dialler).await, (b"back again".to_vec(), true));
    assert_eq!((wire.forth.passed(), wire.back.passed()), (5, 10));
}

#[tokio::test]
async fn a_cut_is_made_at_its_byte() {
    let conducts = Conducts::cut_at(Direction::Forth, 1000, Cut::Close);
    let (mut dialler, mut acceptor, proxy, wire) = pair(conducts).await;
    dialler.write_all(&[7; 5000]).await.unwrap();
    assert_eq!(read_all(&mut acceptor).await, (vec![7; 1000], true));
    assert!(proxy.wait_until(FOREVER, |_| !wire.is_live()).await);
    // The next connection behaves well.
    drop(TcpStream::connect(socket_of(&proxy.address)).await.unwrap());
    assert!(proxy.wait_until(FOREVER, |proxy| proxy.wires().len() == 2).await);
}

#[tokio::test]
async fn a_reset_is_an_error_at_both_ends() {
    let (mut dialler, mut acceptor, proxy, _wire) = pair(Conducts::default()).await;
    dialler.write_all(b"x").await.unwrap();
    assert_eq!(acceptor.read_u8().await.unwrap(), b'x');
    assert_eq!(proxy.cut_all(Cut::Reset), 1);
    assert!(!read_all(&mut dialler).await.1);
    assert!(!read_all(&mut acceptor).await.1);
    assert_eq!(proxy.cut_all(Cut::Reset), 0);
}

#[tokio::test]
async fn a_half_open_connection_is_forgotten_on_one_side() {
    let (mut dialler, mut acceptor, _proxy, wire) = pair(Conducts::default()).await;
    dialler.write_all(b"x").await.unwrap();
    assert_eq!(acceptor.read_u8().await.unwrap(), b'x');
    wire.cut(Cut::HalfOpen);
    assert!(!read_all(&mut dialler).await.1);
    // The acceptor may continue writing, and reads neither bytes nor an end.
    acceptor.write_all(&[0; 100_000]).await.unwrap();
    let mut byte = [0];
    assert!(acceptor.try_read(&mut byte).is_err());
}

#[tokio::test]
async fn one_bit_is_turned() {
    let mut conducts = Conducts::default();
    conducts.back.flip_at = Some(70_001);
    let (mut dialler, mut acceptor, _proxy, _wire) = pair(conducts).await;
    let writing = tokio::spawn(async move { acceptor.write_all(&[0; 100_000]).await });
    let (bytes, ended) = read_all(&mut dialler).await;
    writing.await.unwrap().unwrap();
    let turned: Vec<_> = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0).collect();
    assert_eq!((bytes.len(), ended), (100_000, true));
    assert_eq!(turned, [(70_001, &2)]);
}

#[tokio::test]
async fn a_stalled_lane_reads_nothing_until_it_is_released() {
    let (mut dialler, mut acceptor, _proxy, wire) = pair(Conducts::default()).await;
    wire.forth.set(|conduct| conduct.stalled = true);
    dialler.write_all(b"later").await.unwrap();
    dialler.shutdown().await.unwrap();
    // The other direction continues: a byte arrives although the first direction is stalled.
    acceptor.write_all(b"now").await.unwrap();
    assert_eq!(dialler.read_u8().await.unwrap(), b'n');
    assert_eq!(wire.forth.passed(), 0);
    wire.forth.set(|conduct| conduct.stalled = false);
    assert_eq!(read_all(&mut acceptor).await, (b"later".to_vec(), true));
}

#[tokio::test]
async fn a_stalled_connection_keeps_what_was_written_until_it_is_released() {
    let (mut dialler, mut acceptor, _proxy, wire) = pair(Conducts::default()).await;
    assert_eq!(wire.struck(), None);
    wire.stall();
    assert!(wire.struck().is_some());
    for stream in [&mut dialler, &mut acceptor] {
        stream.write_all(b"later").await.unwrap();
        stream.shutdown().await.unwrap();
    }
    let stands = || wire.is_live() && (wire.forth.passed(), wire.back.passed()) == (0, 0);
    stays("no byte passes", stands).await;
    wire.release();
    assert_eq!(read_all(&mut acceptor).await, (b"later".to_vec(), true));
    assert_eq!(read_all(&mut dialler).await, (b"later".to_vec(), true));
}

#[tokio::test]
async fn who_is_further_away_answers_later_on_every_connection() {
    let delay = Duration::from_millis(20);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let proxy = Proxy::start_apart(listener.local_addr().unwrap(), delay).unwrap();
    // The conduct's own delay is added.
    let mut slow = Conducts::default();
    slow.back.delay = delay;
    for (armed, times) in [(None, 2), (Some(slow), 3), (None, 2)] {
        proxy.arm_next(armed);
        let mut dialler = TcpStream::connect(socket_of(&proxy.address)).await.unwrap();
        let (mut acceptor, _) = listener.accept().await.unwrap();
        let start = tokio::time::Instant::now();
        dialler.write_all(b"x").await.unwrap();
        assert_eq!(acceptor.read_u8().await.unwrap(), b'x');
        acceptor.write_all(b"y").await.unwrap();
        assert_eq!(dialler.read_u8().await.unwrap(), b'y');
        assert!(start.elapsed() >= times * delay);
    }
}

#[tokio::test]
async fn a_blackhole_swallows_one_direction() {
    let (mut dialler, mut acceptor, proxy, wire) = pair(Conducts::default()).await;
    wire.forth.set(|conduct| conduct.blackhole = true);
    dialler.write_all(&[1; 1000]).await.unwrap();
    acceptor.write_all(b"back").await.unwrap();
    assert_eq!(dialler.read_u8().await.unwrap(), b'b');
    dialler.shutdown().await.unwrap();
    assert_eq!(read_all(&mut acceptor).await, (Vec::new(), true));
    assert_eq!(wire.forth.passed(), 0);
    drop(acceptor);
    assert!(proxy.wait_until(FOREVER, |_| !wire.is_live()).await);
}

#[tokio::test]
async fn delays_and_rates_take_their_time() {
    let mut held = Conducts::default();
    held.forth.delay = Duration::from_millis(30);
    held.back.bytes_per_second = Some(20_000);
    let (mut dialler, mut acceptor, _proxy, _wire) = pair(held).await;
    let start = tokio::time::Instant::now();
    dialler.write_all(b"late").await.unwrap();
    dialler.shutdown().await.unwrap();
    assert_eq!(read_all(&mut acceptor).await, (b"late".to_vec(), true));
    assert!(start.elapsed() >= Duration::from_millis(30));
    let start = tokio::time::Instant::now();
    acceptor.write_all(&[0; 2000]).await.unwrap();
    drop(acceptor);
    assert_eq!(read_all(&mut dialler).await.0.len(), 2000);
    assert!(start.elapsed() >= Duration::from_millis(90));
}

const FOREVER: Duration = Duration::from_secs(60);
