//! Sizes of uncompressed video frames, so that nobody computes 3110400 by hand.

use std::fmt;
use std::str::FromStr;

use crate::error::{ConfigError, Error};

/// The memory layout of one uncompressed frame without row padding.
///
/// Chroma planes of odd frames are rounded up, as FFmpeg and GStreamer do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FrameFormat {
    /// Luma only, 8 bits.
    Gray8,
    /// Luma only, 16 bits.
    Gray16,
    /// 4:2:0, 8 bits, three planes.
    I420,
    /// 4:2:0, 8 bits, luma plane and interleaved chroma plane.
    Nv12,
    /// 4:2:0, 10 bits in 16, luma plane and interleaved chroma plane.
    P010,
    /// 4:2:0, 10 bits in 16, three planes.
    I010,
    /// 4:2:2, 8 bits, three planes.
    I422,
    /// 4:2:2, 8 bits, luma plane and interleaved chroma plane.
    Nv16,
    /// 4:2:2, 8 bits, packed, luma first.
    Yuyv,
    /// 4:2:2, 8 bits, packed, chroma first.
    Uyvy,
    /// 4:4:4, 8 bits, three planes.
    I444,
    /// Red, green, blue, 8 bits each.
    Rgb8,
    /// Blue, green, red, 8 bits each.
    Bgr8,
    /// Red, green, blue, alpha, 8 bits each.
    Rgba8,
    /// Blue, green, red, alpha, 8 bits each.
    Bgra8,
    /// Red, green, blue, 16 bits each.
    Rgb16,
    /// Red, green, blue, alpha, 16 bits each.
    Rgba16,
    /// Red, green, blue as 32-bit floats, the input of many networks.
    RgbF32,
    /// Red, green, blue, alpha as 32-bit floats.
    RgbaF32,
}

use FrameFormat::{
    Bgr8, Bgra8, Gray8, Gray16, I010, I420, I422, I444, Nv12, Nv16, P010, Rgb8, Rgb16, RgbF32,
    Rgba8, Rgba16, RgbaF32, Uyvy, Yuyv,
};

impl FrameFormat {
    /// Every format with its name in configuration and on the command line.
    pub const NAMES: [(Self, &'static str); 19] = [
        (Gray8, "gray8"),
        (Gray16, "gray16"),
        (I420, "i420"),
        (Nv12, "nv12"),
        (P010, "p010"),
        (I010, "i010"),
        (I422, "i422"),
        (Nv16, "nv16"),
        (Yuyv, "yuyv"),
        (Uyvy, "uyvy"),
        (I444, "i444"),
        (Rgb8, "rgb8"),
        (Bgr8, "bgr8"),
        (Rgba8, "rgba8"),
        (Bgra8, "bgra8"),
        (Rgb16, "rgb16"),
        (Rgba16, "rgba16"),
        (RgbF32, "rgbf32"),
        (RgbaF32, "rgbaf32"),
    ];

    /// Bytes of one frame of `width` × `height` pixels.
    ///
    /// # Errors
    ///
    /// A zero dimension, or a frame larger than the address space.
    ///
    /// ```
    /// # use pinpool::FrameFormat;
    /// assert_eq!(FrameFormat::Nv12.bytes(1920, 1080)?, 3_110_400);
    /// # Ok::<(), pinpool::Error>(())
    /// ```
    pub fn bytes(self, width: usize, height: usize) -> Result<usize, Error> {
        if width == 0 || height == 0 {
            return Err(bad(format!("a frame of {width}x{height} has no pixels")).into());
        }
        let half_width = width.div_ceil(2);
        let half_height = height.div_ceil(2);
        let product = |a: usize, b: usize, bytes: usize| a.checked_mul(b)?.checked_mul(bytes);
        let luma = |bytes| product(width, height, bytes);
        let sum = |a: Option<usize>, b: Option<usize>| a?.checked_add(b?);
        let bytes = match self {
            Gray8 => luma(1),
            Gray16 => luma(2),
            I420 | Nv12 => sum(luma(1), product(half_width, half_height, 2)),
            I010 | P010 => sum(luma(2), product(half_width, half_height, 4)),
            I422 | Nv16 => sum(luma(1), product(half_width, height, 2)),
            Yuyv | Uyvy => product(half_width, height, 4),
            I444 | Rgb8 | Bgr8 => luma(3),
            Rgba8 | Bgra8 => luma(4),
            Rgb16 => luma(6),
            Rgba16 => luma(8),
            RgbF32 => luma(12),
            RgbaF32 => luma(16),
        };
        bytes.filter(|bytes| isize::try_from(*bytes).is_ok()).ok_or_else(|| {
            bad(format!("a {self} frame of {width}x{height} exceeds the address space")).into()
        })
    }
}

impl fmt::Display for FrameFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            Self::NAMES.iter().find(|(format, _)| format == self).map_or("?", |(_, name)| name);
        f.pad(name)
    }
}

impl FromStr for FrameFormat {
    type Err = Error;

    /// Reads a name of [`FrameFormat::NAMES`] in any case, or `FFmpeg`'s name for the same layout
    /// (`yuv420p`, `rgb24`, `uyvy422` …); `rgb` and `rgba` mean 8 bits.
    fn from_str(text: &str) -> Result<Self, Error> {
        let name = text.to_ascii_lowercase();
        let name = match name.as_str() {
            "rgb" | "rgba" | "bgr" | "bgra" | "gray" => format!("{name}8"),
            "rgb24" | "bgr24" => format!("{}8", &name[..3]),
            "yuv420p" => "i420".into(),
            "yuv420p10le" => "i010".into(),
            "p010le" => "p010".into(),
            "yuyv422" => "yuyv".into(),
            "uyvy422" => "uyvy".into(),
            "yuv422p" => "i422".into(),
            "yuv444p" => "i444".into(),
            _ => name,
        };
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(format, _)| *format).ok_or_else(
            || {
                let known = Self::NAMES.map(|(_, name)| name);
                bad(format!("unknown frame format '{text}'")).nearest(&name, &known).into()
            },
        )
    }
}

/// A frame size with its format: what `--frame` and examples take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameSpec {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// The memory layout.
    pub format: FrameFormat,
}

impl FrameSpec {
    /// Bytes of one frame.
    ///
    /// # Errors
    ///
    /// As [`FrameFormat::bytes`].
    pub fn bytes(&self) -> Result<usize, Error> {
        self.format.bytes(self.width, self.height)
    }
}

impl fmt::Display for FrameSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}:{}", self.width, self.height, self.format)
    }
}

impl FromStr for FrameSpec {
    type Err = Error;

    /// Reads `1080p-rgb`, `4k-nv12` or `WIDTHxHEIGHT:FORMAT`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let unreadable = || {
            bad(format!("cannot read frame '{text}'")).help(
                "write WIDTHxHEIGHT:FORMAT such as 1920x1080:nv12, or 480p-, 720p-, 1080p-, 1440p-, \
                 4k- or 8k- with a format such as 1080p-rgb",
            )
        };
        let spec = if let Some((name, format)) = text.split_once('-') {
            let (_, width, height) = SIZES
                .into_iter()
                .find(|(known, ..)| name.eq_ignore_ascii_case(known))
                .ok_or_else(&unreadable)?;
            Self { width, height, format: format.parse()? }
        } else {
            let (size, format) = text.split_once(':').ok_or_else(&unreadable)?;
            let (width, height) = size.split_once(['x', 'X']).ok_or_else(&unreadable)?;
            let number = |digits: &str| digits.parse().map_err(|_| unreadable());
            Self { width: number(width)?, height: number(height)?, format: format.parse()? }
        };
        spec.bytes()?;
        Ok(spec)
    }
}

/// Names of the usual sizes.
const SIZES: [(&str, usize, usize); 8] = [
    ("480p", 854, 480),
    ("720p", 1280, 720),
    ("1080p", 1920, 1080),
    ("1440p", 2560, 1440),
    ("4k", 3840, 2160),
    ("2160p", 3840, 2160),
    ("8k", 7680, 4320),
    ("4320p", 7680, 4320),
];

fn bad(problem: String) -> ConfigError {
    ConfigError::argument("frame", problem)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn known_sizes() {
        let full_hd = |format: FrameFormat| format.bytes(1920, 1080).unwrap_or(0);
        assert_eq!(full_hd(Nv12), 3_110_400);
        assert_eq!(full_hd(I420), 3_110_400);
        assert_eq!(full_hd(P010), 6_220_800);
        assert_eq!(full_hd(Rgb8), 6_220_800);
        assert_eq!(full_hd(Rgba8), 8_294_400);
        assert_eq!(full_hd(Yuyv), 4_147_200);
        assert_eq!(full_hd(RgbF32), 24_883_200);
        assert_eq!(Rgb8.bytes(3840, 2160).unwrap_or(0), 24_883_200);
    }

    #[test]
    fn odd_frames_round_chroma_up() {
        assert_eq!(I420.bytes(3, 3).unwrap_or(0), 9 + 2 * 4);
        assert_eq!(Nv12.bytes(1, 1).unwrap_or(0), 1 + 2);
        assert_eq!(I422.bytes(3, 2).unwrap_or(0), 6 + 2 * 2 * 2);
        assert_eq!(Yuyv.bytes(3, 1).unwrap_or(0), 8);
    }

    #[test]
    fn impossible_frames_are_refused() {
        for format in FrameFormat::NAMES.map(|(format, _)| format) {
            assert!(format.bytes(0, 1080).is_err());
            assert!(format.bytes(1, 0).is_err());
            assert!(format.bytes(usize::MAX, usize::MAX).is_err());
            assert!(format.bytes(usize::MAX, 1).is_err(), "{format}");
        }
    }

    #[test]
    fn names_read_back() {
        for (format, name) in FrameFormat::NAMES {
            assert_eq!(name.parse::<FrameFormat>().ok(), Some(format));
            assert_eq!(format.to_string(), name);
        }
        let spec: Option<FrameSpec> = "4K-NV12".parse().ok();
        assert_eq!(spec.and_then(|spec| spec.bytes().ok()), Some(12_441_600));
        assert_eq!(
            "640x480:gray8".parse::<FrameSpec>().map(|s| s.to_string()).ok().as_deref(),
            Some("640x480:gray8")
        );
        for wrong in ["", "1080p", "1080p-", "axb:rgb8", "0x5:rgb8", "5x5", "99p-rgb", "1080p-nv13"]
        {
            assert!(wrong.parse::<FrameSpec>().is_err(), "{wrong}");
        }
        let error =
            "1080p-nv13".parse::<FrameSpec>().err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("did you mean 'nv12'?"), "{error}");
    }
}
