use proptest::prelude::*;

use super::*;

/// Layers with few hashes and low versions, so that two hellos often have some in common.
fn layers() -> impl Strategy<Value = [LayerRange; LAYERS_MAX]> {
    let hashes = Just([0, 0, 1, 2, 3, u32::MAX]).prop_shuffle();
    let versions = proptest::array::uniform4((0..4_u16, 0..4_u16));
    (hashes, versions).prop_map(|(hashes, versions)| {
        std::array::from_fn(|at| match (hashes[at], versions[at]) {
            (0, _) => LayerRange::default(),
            (hash, (a, b)) => LayerRange { hash, oldest: a.min(b), newest: a.max(b) },
        })
    })
}

fn hello() -> impl Strategy<Value = Hello> {
    let limits = any::<(u32, u64, u64, u32, u32)>();
    let names = ("[a-z\u{e4}\u{20ac}]{0,10}", "\\PC{0,8}");
    let numbers = any::<(u16, u16, u16, u128)>();
    (numbers, limits, names, layers()).prop_map(|(numbers, limits, names, layers)| {
        let (one, other, codec, incarnation) = numbers;
        Hello {
            version_min: one.min(other),
            version_max: one.max(other),
            codec,
            packet_bytes_max: limits.0,
            message_bytes_max: limits.1,
            open_credit: limits.2,
            initial_window: limits.3,
            flags: limits.4,
            host: limits.0 ^ limits.3,
            nonce: [limits.4 as u8; NONCE_BYTES],
            layers,
            ..Hello::new(Name::truncated(&names.0), Name::truncated(&names.1), incarnation)
        }
    })
}

/// A place without a layer.
const EMPTY: LayerRange = LayerRange { hash: 0, oldest: 0, newest: 0 };

fn sample() -> Hello {
    let names = (Name::new("lab").unwrap(), Name::new("node-1").unwrap());
    Hello {
        // Its own versions, whatever this code speaks.
        version_min: 2,
        version_max: 3,
        packet_bytes_max: 65_536,
        message_bytes_max: 1 << 40,
        open_credit: 1 << 33,
        initial_window: 16_384,
        flags: 21,
        host: 0x0807_0605,
        nonce: [9; NONCE_BYTES],
        layers: [LayerRange { hash: 0x0a0b_0c0d, oldest: 5, newest: 0x0106 }, EMPTY, EMPTY, EMPTY],
        ..Hello::new(names.0, names.1, 0x0102_0304)
    }
}

proptest! {
    #[test]
    fn round_trip(hello in hello()) {
        prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }

    #[test]
    fn any_bytes_are_a_hello_or_an_error(
        mut bytes in proptest::array::uniform32(any::<u8>()),
        tail in any::<[u8; 32]>(),
        magic in any::<bool>(),
    ) {
        if magic {
            bytes[..8].copy_from_slice(&MAGIC);
        }
        let whole: [u8; HELLO_BYTES] =
            [bytes, tail, tail, bytes, tail, bytes].concat().try_into().unwrap();
        if let Ok(hello) = Hello::decode(&whole) {
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
    }

    #[test]
    fn both_ends_agree_alike(one in hello(), other in hello()) {
        let fixed = FLAG_CREDENTIAL | FLAG_TLS;
        let flags = other.flags & !fixed | one.flags & fixed;
        let other = Hello { cluster: one.cluster, codec: one.codec, flags, ..other };
        // Layers have a property of their own, below.
        let other = Hello { layers: [EMPTY; LAYERS_MAX], ..other };
        let (ours, theirs) = (Hello::agree(&one, &other), Hello::agree(&other, &one));
        prop_assert_eq!(ours.ok(), theirs.ok());
        if let Ok(agreement) = ours {
            for end in [one, other] {
                prop_assert!(end.version_min <= agreement.version);
                prop_assert!(agreement.version <= end.version_max);
            }
        }
    }

    #[test]
    fn both_ends_agree_alike_on_the_newest_common_version_of_each_layer(
        one in layers(),
        other in layers(),
    ) {
        let ours = Hello { layers: one, ..sample() };
        let theirs = Hello { layers: other, ..sample() };
        let has = |layers: &[LayerRange; LAYERS_MAX], hash| layers.iter().any(|it| it.hash == hash);
        let speaks = |layers: &[LayerRange; LAYERS_MAX], hash, version| {
            layers.iter().any(|it| it.hash == hash && (it.oldest..=it.newest).contains(&version))
        };
        // Found by search, without the arithmetic of the product.
        let newest = |hash| {
            let both = |version: &u16| speaks(&one, hash, *version) && speaks(&other, hash, *version);
            (0..4).rev().find(both)
        };
        match (Hello::agree(&ours, &theirs), Hello::agree(&theirs, &ours)) {
            (Ok(agreement), Ok(alike)) => {
                prop_assert_eq!(agreement, alike);
                prop_assert_eq!(agreement.layer(0), None);
                for hash in [1, 2, 3, u32::MAX] {
                    prop_assert_eq!(agreement.layer(hash), newest(hash));
                    let common = has(&one, hash) && has(&other, hash);
                    prop_assert_eq!(agreement.layer(hash).is_some(), common);
                }
            }
            (Err(Disagreement::Layer { hash, ours, .. }), Err(Disagreement::Layer { .. })) => {
                prop_assert!(has(&one, hash) && has(&other, hash));
                prop_assert_eq!(newest(hash), None);
                let named = LayerRange { hash, oldest: ours.0, newest: ours.1 };
                prop_assert!(one.contains(&named));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}

#[test]
fn the_fields_lie_where_the_module_says() {
    let bytes = sample().encode();
    assert_eq!(bytes[..8], MAGIC);
    assert_eq!(bytes[8..16], [2, 0, 3, 0, 1, 0, 5, 6]);
    assert_eq!(bytes[16], 21);
    assert_eq!(bytes[20..28], [0, 0, 1, 0, 0, 64, 0, 0]);
    assert_eq!(bytes[28..32], [3, 6, 7, 8]);
    assert_eq!(bytes[32..36], [4, 3, 2, 1]);
    assert_eq!((bytes[53], bytes[60]), (1, 2));
    assert_eq!((&bytes[64..67], &bytes[96..102]), (&b"lab"[..], &b"node-1"[..]));
    assert_eq!(bytes[128..160], [9; 32]);
    assert_eq!(bytes[160..168], [0x0d, 0x0c, 0x0b, 0x0a, 5, 0, 6, 1]);
    assert_eq!(bytes[168..], [0; 24]);
}

#[test]
fn what_has_no_meaning_yet_is_not_looked_at() {
    let mut bytes = sample().encode();
    // The versions of an empty place.
    bytes[172..176].fill(0xff);
    assert_eq!(Hello::decode(&bytes), Ok(sample()));
}

#[test]
fn bytes_that_are_no_hello_are_named() {
    let change = |place: usize, value: u8| {
        let mut bytes = sample().encode();
        bytes[place] = value;
        Hello::decode(&bytes)
    };
    let mut http = [0; HELLO_BYTES];
    http[..16].copy_from_slice(b"GET / HTTP/1.1\r\n");
    let error = Hello::decode(&http).unwrap_err();
    assert_eq!(error, HelloError::Magic { found: *b"GET / HT" });
    assert!(error.to_string().contains("GET / HT"), "{error}");
    assert_eq!(change(8, 4), Err(HelloError::Versions { min: 4, max: 3 }));
    assert_eq!(change(28, 33), Err(HelloError::Cluster));
    assert_eq!(change(64, 0xff), Err(HelloError::Cluster));
    assert_eq!(change(29, 255), Err(HelloError::Node));
    assert_eq!(change(96, 0xff), Err(HelloError::Node));
    let hash = 0x0a0b_0c0d;
    let error = change(165, 9).unwrap_err();
    assert_eq!(error, HelloError::Layer { hash, oldest: 0x0905, newest: 0x0106 });
    assert!(error.to_string().contains("from 2309 to 262 of layer 0x0a0b0c0d"), "{error}");
    let first = sample().layers[0];
    let twice = Hello { layers: [first, EMPTY, first, EMPTY], ..sample() };
    assert_eq!(Hello::decode(&twice.encode()), Err(HelloError::LayerTwice { hash }));
}

#[test]
fn the_start_is_enough_to_turn_others_away() {
    let bytes = sample().encode();
    assert!((0..HELLO_BYTES).all(|end| Hello::may_start_with(&bytes[..end])));
    assert!(!Hello::may_start_with(b"G"));
    assert!(!Hello::may_start_with(b"\x9cchunk\n"));
}

#[test]
fn disagreements_name_both_values() {
    let ours = sample();
    let newer = Hello { version_min: 7, version_max: 9, ..ours };
    let error = Hello::agree(&ours, &newer).unwrap_err();
    assert_eq!(error, Disagreement::Versions { ours: (2, 3), theirs: (7, 9) });
    assert_eq!(error.to_string(), "no common protocol version: we speak 2 to 3, the peer 7 to 9");

    let foreign = Hello { codec: 9, ..ours };
    let error = Hello::agree(&ours, &foreign).unwrap_err();
    assert_eq!(error, Disagreement::Codec { ours: CODEC_ID, theirs: 9 });

    let elsewhere = Hello { cluster: Name::new("hall\n").unwrap(), ..ours };
    let error = Hello::agree(&ours, &elsewhere).unwrap_err();
    assert_eq!(error.to_string(), "different clusters: ours is \"lab\", the peer's is \"hall\\n\"");
}

#[test]
fn a_layer_without_a_common_version_is_named() {
    let ours = sample();
    let newer = LayerRange { oldest: 0x0107, newest: 0x0109, ..ours.layers[0] };
    let theirs = Hello { layers: [EMPTY, newer, EMPTY, EMPTY], ..ours };
    let error = Hello::agree(&ours, &theirs).unwrap_err();
    let ranges = ": we speak 5 to 262, the peer 263 to 265";
    assert_eq!(error.to_string(), format!("no common version of layer 0x0a0b0c0d{ranges}"));
    let Disagreement::Layer { hash, ours, theirs, .. } = error else { panic!("{error}") };
    let named = Disagreement::Layer { hash, name: Some("stage"), ours, theirs };
    assert_eq!(named.to_string(), format!("no common version of stage{ranges}"));
}

/// They are on the wire: another hash would be another layer.
#[test]
fn the_hashes_of_layers_stay() {
    assert_eq!(layer_hash("chunkcomm.cluster"), 0x6cec_a990);
    assert_ne!(layer_hash(""), 0);
}

#[test]
fn what_admits_peers_is_not_negotiated() {
    let plain = Hello { flags: 0, ..sample() };
    for (flags, ours, theirs) in [
        (FLAG_CREDENTIAL, "this node admits nobody without", "the peer wants a credential"),
        (FLAG_CREDENTIAL | FLAG_TLS, "the peer has no credential", "this node has none"),
        (FLAG_TLS, "the peer does not speak TLS", "the peer wants TLS"),
    ] {
        let admitting = Hello { flags, ..plain };
        assert!(Hello::agree(&admitting, &admitting).is_ok());
        let error = Hello::agree(&admitting, &plain).unwrap_err().to_string();
        assert!(error.contains(ours), "{error}");
        let error = Hello::agree(&plain, &admitting).unwrap_err().to_string();
        assert!(error.contains(theirs), "{error}");
    }
}

#[test]
fn an_agreement_is_what_both_can_do() {
    let theirs = Hello {
        version_min: 3,
        version_max: 4,
        packet_bytes_max: 1024,
        message_bytes_max: u64::MAX,
        flags: 25,
        node: Name::new("other").unwrap(),
        layers: [EMPTY, LayerRange { hash: 0x0a0b_0c0d, oldest: 3, newest: 7 }, EMPTY, EMPTY],
        ..sample()
    };
    let mut layers = [LayerVersion::default(); LAYERS_MAX];
    layers[LAYERS_MAX - 1] = LayerVersion { hash: 0x0a0b_0c0d, version: 7 };
    let agreement = Agreement {
        version: 3,
        packet_bytes_max: 1024,
        message_bytes_max: 1 << 40,
        flags: 17,
        layers,
    };
    assert_eq!(Hello::agree(&sample(), &theirs), Ok(agreement));
}

#[test]
fn names_are_cut_between_characters_or_refused() {
    let exact = "a".repeat(NAME_BYTES_MAX);
    assert_eq!(Name::new(&exact).unwrap().as_str(), exact);
    assert_eq!(Name::new(&(exact.clone() + "b")), None);
    assert_eq!(Name::truncated(&(exact.clone() + "b")).as_str(), exact);
    let wide = "\u{20ac}".repeat(20);
    assert_eq!(Name::truncated(&wide).as_str(), "\u{20ac}".repeat(10));
    assert_eq!(Name::new("").unwrap().as_str(), "");
}
