//! TLS over pipes in memory, seen from both ends.

use super::identity::{self, configs};
use super::*;
use crate::transport::memory::pipe;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};

const SEED: [u8; 32] = [5; 32];

async fn ends(one: &TlsConfigs, other: &TlsConfigs) -> (Box<dyn Transport>, Box<dyn Transport>) {
    let (a, b) = pipe();
    let binding = b"a test".to_vec();
    let dialled = one.dialled(a, identity::name(), binding.clone());
    let (a, b) = tokio::join!(dialled, other.accepted(b, binding));
    (a.unwrap(), b.unwrap())
}

async fn write_all(transport: &mut dyn Transport, bytes: &[u8], pieces: &[usize]) {
    let mut at = 0;
    let mut pieces = pieces.iter().cycle();
    while at < bytes.len() {
        let end = (at + pieces.next().unwrap()).min(bytes.len());
        let half = at + (end - at) / 3;
        let both = [IoSlice::new(&bytes[at..half]), IoSlice::new(&bytes[half..end])];
        at += poll_fn(|context| transport.poll_write(context, &both)).await.unwrap();
    }
}

async fn read_exact(transport: &mut dyn Transport, bytes: &mut [u8], pieces: &[usize]) {
    let mut at = 0;
    let mut pieces = pieces.iter().cycle();
    while at < bytes.len() {
        let end = (at + pieces.next().unwrap()).min(bytes.len());
        let (first, second) = bytes[at..end].split_at_mut((end - at) / 2);
        let mut both = [IoSliceMut::new(first), IoSliceMut::new(second)];
        let read = poll_fn(|context| transport.poll_read_two(context, &mut both)).await.unwrap();
        assert_ne!(read, 0, "the end came early");
        at += read;
    }
}

fn some_bytes(count: usize, salt: usize) -> Vec<u8> {
    (0..count).map(|index| ((index * 31 + salt) % 253) as u8).collect()
}

/// Writes much in both directions and reads little at a time: more than pipe and buffers hold.
async fn both_ways(mut a: Box<dyn Transport>, mut b: Box<dyn Transport>) {
    let (up, down) = (some_bytes(3_000_000, 1), some_bytes(2_000_000, 2));
    let (mut came_up, mut came_down) = (vec![0; up.len()], vec![0; down.len()]);
    // One end writes first, so that the other has to read while it writes.
    tokio::join!(
        async {
            write_all(&mut *a, &up, &[1, 70_000, 3, 16_384, 500]).await;
            read_exact(&mut *a, &mut came_down, &[100_000, 7, 20_000, 1]).await;
        },
        async {
            read_exact(&mut *b, &mut came_up, &[5, 65_536, 1, 40_000]).await;
            write_all(&mut *b, &down, &[64_000, 200, 200_000]).await;
        }
    );
    assert!(came_up == up && came_down == down);
    // The end comes once all bytes were read, and comes again.
    poll_fn(|context| a.poll_shutdown(context)).await.unwrap();
    let mut room = [0; 10];
    for _ in 0..2 {
        let read = poll_fn(|context| b.poll_read(context, &mut room)).await.unwrap();
        assert_eq!(read, 0);
    }
}

#[tokio::test]
async fn bytes_arrive_in_any_pieces() {
    let configs = configs(&SEED).unwrap();
    let (a, b) = ends(&configs, &configs).await;
    both_ways(a, b).await;
}

#[tokio::test]
async fn keys_are_changed_when_they_are_used_up() {
    let configs = identity::configs_with(&SEED, provider_of_short_keys()).unwrap();
    let (a, b) = ends(&configs, &configs).await;
    both_ways(a, b).await;
}

/// Shakes hands; messages after the handshake, such as tickets, arrive too.
fn shaken(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> ClientConnection {
    let mut client = ClientConnection::new(Arc::clone(client), identity::name()).unwrap();
    let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
    while client.wants_write() || server.wants_write() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        server.read_tls(&mut &bytes[..]).unwrap();
        server.process_new_packets().unwrap();
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        client.read_tls(&mut &bytes[..]).unwrap();
        client.process_new_packets().unwrap();
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    client
}

#[test]
fn no_ticket_is_given_or_taken_and_nothing_is_said_early() {
    use rustls::HandshakeKind::{Full, Resumed};
    let allowing_all = || {
        let strict = configs(&SEED).unwrap();
        let mut client = ClientConfig::clone(&strict.client);
        client.resumption = rustls::client::Resumption::in_memory_sessions(8);
        client.enable_early_data = true;
        let mut server = ServerConfig::clone(&strict.server);
        server.session_storage = rustls::server::ServerSessionMemoryCache::new(8);
        server.send_tls13_tickets = 4;
        server.max_early_data_size = 1024;
        server.send_half_rtt_data = true;
        (client, server)
    };
    // Whether the second connection resumes the first, its number of tickets, and whether it may
    // send early data.
    let twice = |client: ClientConfig, server: ServerConfig| {
        let (client, server) = (Arc::new(client), Arc::new(server));
        shaken(&client, &server);
        let early = ClientConnection::new(Arc::clone(&client), identity::name()).unwrap();
        let says_early = { early }.early_data().is_some();
        let second = shaken(&client, &server);
        (second.handshake_kind().unwrap(), second.tls13_tickets_received(), says_early)
    };
    let (client, server) = allowing_all();
    assert_eq!(twice(client, server), (Resumed, 4, true), "the user's own, as they are");
    let ours = |(client, server)| {
        let configs = TlsConfigs::new(&client, &server);
        (ClientConfig::clone(&configs.client), ServerConfig::clone(&configs.server))
    };
    let ((lax, _), (_, server)) = (allowing_all(), ours(allowing_all()));
    assert_eq!((server.max_early_data_size, server.send_half_rtt_data), (0, false));
    assert_eq!(twice(lax, server), (Full, 0, false), "ours is dialled");
    let ((client, _), (_, lax)) = (ours(allowing_all()), allowing_all());
    assert_eq!(twice(client, lax), (Full, 4, false), "ours dials");
}

/// Returns a provider whose keys are good for a few records.
fn provider_of_short_keys() -> rustls::crypto::CryptoProvider {
    use rustls::crypto::ring::{cipher_suite::TLS13_AES_128_GCM_SHA256, default_provider};
    let suite = TLS13_AES_128_GCM_SHA256.tls13().unwrap();
    let common = rustls::crypto::CipherSuiteCommon { confidentiality_limit: 5, ..suite.common };
    let suite = rustls::Tls13CipherSuite {
        common,
        hkdf_provider: suite.hkdf_provider,
        aead_alg: suite.aead_alg,
        quic: None,
    };
    let suite: &'static _ = Box::leak(Box::new(suite));
    let cipher_suites = vec![rustls::SupportedCipherSuite::Tls13(suite)];
    rustls::crypto::CryptoProvider { cipher_suites, ..default_provider() }
}

/// Flips a bit of the next read bytes, once `now` is set.
struct Meddling {
    below: Box<dyn Transport>,
    now: Arc<AtomicBool>,
}

impl Transport for Meddling {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = ready!(self.below.poll_read(context, buffer))?;
        if read > 0 && self.now.swap(false, Ordering::Relaxed) {
            buffer[read / 2] ^= 4;
        }
        Poll::Ready(Ok(read))
    }

    fn poll_read_two(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>; 2],
    ) -> Poll<io::Result<usize>> {
        self.poll_read(context, &mut buffers[0])
    }

    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.below.poll_write(context, buffers)
    }

    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.below.poll_shutdown(context)
    }

    #[cfg(target_os = "linux")]
    fn into_below(self: Box<Self>) -> io::Result<Below> {
        Ok(Below::Nothing(self))
    }
}

#[tokio::test]
async fn a_changed_byte_is_an_error_and_not_data() {
    let configs = configs(&SEED).unwrap();
    let (a, b) = pipe();
    let now = Arc::new(AtomicBool::new(false));
    let b = Box::new(Meddling { below: b, now: Arc::clone(&now) });
    let binding = b"a test".to_vec();
    let dialled = configs.dialled(a, identity::name(), binding.clone());
    let (a, b) = tokio::join!(dialled, configs.accepted(b, binding));
    let (mut a, mut b) = (a.unwrap(), b.unwrap());
    let mut room = [0; 100];
    write_all(&mut *a, &[1; 100], &[100]).await;
    read_exact(&mut *b, &mut room, &[100]).await;
    now.store(true, Ordering::Relaxed);
    write_all(&mut *a, &[1; 100], &[100]).await;
    for _ in 0..2 {
        let read = poll_fn(|context| b.poll_read(context, &mut room)).await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::InvalidData);
    }
    // The other end receives an alert.
    let read = poll_fn(|context| a.poll_read(context, &mut room)).await;
    assert!(read.unwrap_err().to_string().contains("alert"));
}

#[test]
fn the_identity_is_the_same_for_the_same_seed() {
    assert_eq!(identity::certificate(&SEED), identity::certificate(&SEED));
    assert_ne!(identity::certificate(&SEED), identity::certificate(&[6; 32]));
}

#[test]
fn the_identity_of_a_seed_never_changes() {
    let certificate = identity::certificate(&SEED);
    let digest = ring::digest::digest(&ring::digest::SHA256, &certificate);
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "b507c28f6ba83f8374e3cef37be951ec3a0cd524d073c18cbb1e3724723fabae");
}

/// Returns the certificate of the key with this seed as `rcgen` makes it.
fn by_rcgen(seed: &[u8; 32]) -> rcgen::Certificate {
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(identity::key(seed));
    let key = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&key, &rcgen::PKCS_ED25519).unwrap();
    let mut parameters = rcgen::CertificateParams::new(["chunkcomm".to_owned()]).unwrap();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "chunkcomm");
    parameters.self_signed(&key).unwrap()
}

#[test]
fn the_identity_is_the_certificate_that_rcgen_makes() {
    // With these two, the serial number is shorter, and has a zero in front of its first bit.
    let (shorter, padded) = (805, 154);
    for number in (0..100u32).chain([shorter, padded]) {
        let mut seed = [0; 32];
        seed[..4].copy_from_slice(&number.to_le_bytes());
        let certificate = identity::certificate(&seed);
        assert_eq!(certificate, *by_rcgen(&seed).der(), "seed {number}");
        // Length and first byte of the serial number, behind the version and the number's tag.
        let version = certificate.windows(5).position(|bytes| bytes == [0xa0, 3, 2, 1, 2]);
        let serial = &certificate[version.unwrap() + 6..];
        assert_eq!((serial[0] < 20, serial[1] == 0), (number == shorter, number == padded));
    }
}
