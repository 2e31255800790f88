//! What the keys do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// To end.
    Quit,
    /// To stop like any other job of the shell.
    Suspend,
    /// To look no more, or to go on.
    Pause,
    /// Half the time from look to look.
    Faster,
    /// Twice the time.
    Slower,
    /// To follow the next smaller order.
    Smaller,
    /// To follow the next larger one.
    Larger,
    /// To read `pagetypeinfo` once.
    Types,
    /// To show the keys, or the host again.
    Help,
}

/// The keys with what they do, as they are shown.
pub(super) const SHOWN: [(&str, &str); 8] = [
    ("q", "quit (also Esc and Ctrl-C)"),
    ("space", "pause, and go on"),
    ("+", "look twice as often"),
    ("-", "look half as often"),
    ("left", "follow the next smaller order"),
    ("right", "follow the next larger order"),
    ("t", "read pagetypeinfo once: pageblocks by type; it costs milliseconds and holds locks"),
    ("h", "show this, or the host again"),
];

/// What this key does; `None` for one that does nothing.
pub(super) fn key(pressed: &KeyEvent) -> Option<Key> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    if pressed.modifiers.contains(KeyModifiers::CONTROL) {
        return match pressed.code {
            KeyCode::Char('c') => Some(Key::Quit),
            KeyCode::Char('z') => Some(Key::Suspend),
            _ => None,
        };
    }
    Some(match pressed.code {
        KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
        KeyCode::Char(' ' | 'p') => Key::Pause,
        KeyCode::Char('+' | '=') => Key::Faster,
        KeyCode::Char('-' | '_') => Key::Slower,
        KeyCode::Left => Key::Smaller,
        KeyCode::Right => Key::Larger,
        KeyCode::Char('t') => Key::Types,
        KeyCode::Char('h' | '?') => Key::Help,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_what_is_shown() {
        let plain = |code| key(&KeyEvent::new(code, KeyModifiers::NONE));
        let control = |letter| key(&KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
        assert_eq!(
            (plain(KeyCode::Char('q')), plain(KeyCode::Esc)),
            (Some(Key::Quit), Some(Key::Quit))
        );
        assert_eq!((control('c'), control('z')), (Some(Key::Quit), Some(Key::Suspend)));
        assert_eq!((plain(KeyCode::Char('c')), plain(KeyCode::Enter)), (None, None));
        for (name, _) in SHOWN {
            let code = match name {
                "space" => KeyCode::Char(' '),
                "left" => KeyCode::Left,
                "right" => KeyCode::Right,
                letter => KeyCode::Char(letter.chars().next().unwrap()),
            };
            assert!(plain(code).is_some(), "{name}");
        }
    }
}
