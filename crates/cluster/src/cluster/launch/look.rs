//! Looks at variables. Each one found is a reason for the place; one that makes no sense is an
//! error that names the variable.

use super::{Environment, Meet, PORTS_DEFAULT, Place, SIZE_MAX};
use crate::launch::LaunchError;
use chunkcomm::Address;
use std::ops::RangeInclusive;

/// Function that looks for one launcher.
pub(super) type Way = fn(&mut Look<'_>) -> Result<Option<Place>, LaunchError>;

/// The environment, and the variables found in it.
pub(super) struct Look<'a> {
    pub(super) environment: &'a Environment,
    pub(super) found: Vec<(String, String)>,
}

impl Look<'_> {
    /// Returns the value, and notes it as a reason.
    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        let value = self.environment.get(name)?.to_owned();
        if !self.found.iter().any(|(noted, _)| noted == name) {
            self.found.push((name.to_owned(), value.clone()));
        }
        Some(value)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.environment.get(name).is_some()
    }

    pub(super) fn needed(&mut self, name: &str, why: &str) -> Result<String, LaunchError> {
        let missing = || LaunchError::Variable {
            variable: name.to_owned(),
            value: None,
            why: why.to_owned(),
        };
        self.text(name).ok_or_else(missing)
    }

    pub(super) fn wrong(&self, name: &str, why: impl Into<String>) -> LaunchError {
        let value = self.environment.get(name).map(str::to_owned);
        LaunchError::Variable { variable: name.to_owned(), value, why: why.into() }
    }

    /// Returns a whole number within these bounds.
    pub(super) fn number(
        &mut self,
        name: &str,
        allowed: RangeInclusive<u32>,
    ) -> Result<u32, LaunchError> {
        let why = format!("a whole number from {} to {} is needed", allowed.start(), allowed.end());
        let text = self.needed(name, &why)?;
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| plain && allowed.contains(number));
        number.ok_or_else(|| self.wrong(name, why))
    }

    /// Returns a rank and a size that fit together.
    pub(super) fn rank_and_size(
        &mut self,
        rank: &str,
        size: &str,
    ) -> Result<(u32, u32), LaunchError> {
        let number = self.number(rank, 0..=SIZE_MAX - 1)?;
        let count = self.number(size, 1..=SIZE_MAX)?;
        if number >= count {
            return Err(self.wrong(rank, format!("it must be below {size}, which is {count}")));
        }
        Ok((number, count))
    }

    /// Checks a host's name, or a part of it, from this variable.
    pub(super) fn host(&self, name: &str, host: &str) -> Result<(), LaunchError> {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte);
        if host.is_empty() || host.starts_with('-') || !host.bytes().all(letter) {
            return Err(self.wrong(name, format!("{host:?} is no host")));
        }
        Ok(())
    }

    /// Returns the name or address at which others reach this node, if set.
    pub(super) fn own_host(&self) -> Result<Option<String>, LaunchError> {
        const NAME: &str = "CHUNKCOMM_HOST";
        let Some(host) = self.environment.get(NAME) else { return Ok(None) };
        self.host(NAME, host)?;
        Ok(Some(host.to_owned()))
    }

    /// Returns the range of ports, if one is set.
    pub(super) fn ports(&mut self) -> Result<Option<RangeInclusive<u16>>, LaunchError> {
        const NAME: &str = "CHUNKCOMM_PORTS";
        let Some(text) = self.environment.get(NAME) else { return Ok(None) };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ports = match (first.parse::<u16>(), last.parse::<u16>()) {
            (Ok(first), Ok(last)) if 1 <= first && first <= last => first..=last,
            _ => return Err(self.wrong(NAME, "a range such as 17700-17799 is needed")),
        };
        Ok(Some(ports))
    }

    /// Returns the ports of the range, each once, from a place on that `seed` chooses.
    pub(super) fn ports_from(&mut self, seed: u64) -> Result<Vec<u16>, LaunchError> {
        let ports = self.ports()?.unwrap_or(PORTS_DEFAULT);
        let count = u64::from(*ports.end() - ports.start()) + 1;
        let first = (seed % count) as usize;
        Ok(ports.clone().cycle_from(first))
    }

    /// Returns the place of rank 0 according to `CHUNKCOMM_MANAGER`.
    pub(super) fn manager(&mut self) -> Result<Option<Meet>, LaunchError> {
        const NAME: &str = "CHUNKCOMM_MANAGER";
        let Some(text) = self.text(NAME) else { return Ok(None) };
        match text.parse() {
            Ok(Address::Tcp { host, port }) if port > 0 => Ok(Some(Meet::at(&host, [port]))),
            Ok(address) if address.is_simulated() => Ok(Some(Meet::At(vec![address]))),
            Ok(_) => Err(self.wrong(NAME, "host:port is needed, with a port from 1 on")),
            Err(error) => Err(self.wrong(NAME, format!("{error}"))),
        }
    }
}

/// A range rotated to begin at an index.
trait Cycle {
    fn cycle_from(self, index: usize) -> Vec<u16>;
}

impl Cycle for RangeInclusive<u16> {
    fn cycle_from(self, index: usize) -> Vec<u16> {
        let mut ports: Vec<u16> = self.collect();
        ports.rotate_left(index);
        ports
    }
}
